#include "model/sources/vision_sources.h"

namespace headrace {

namespace {

void append(const std::vector<const VectorSource*>& sources,
            std::vector<const VectorSource*>& out) {
  for (const VectorSource* source : sources) {
    if (!source->empty()) out.push_back(source);
  }
}

/// `Sources` and `Matrix` are both const, or neither is.
template <class Sources, class Matrix>
void append_linears(Sources& sources, std::vector<Matrix*>& out) {
  for (auto& block : sources.blocks) {
    for (auto* linear : {&block.q, &block.kv, &block.proj, &block.up, &block.down}) {
      out.push_back(&linear->matrix);
    }
  }
  for (auto& merger : sources.mergers) {
    if (!merger.up.matrix.empty()) out.push_back(&merger.up.matrix);
    out.push_back(&merger.down.matrix);
  }
  if (!sources.resampler) return;
  auto& [square, grids, last, norm] = *sources.resampler;
  for (auto* linear : {&square.up, &square.down, &grids.up, &grids.down, &last}) {
    out.push_back(&linear->matrix);
  }
}

}  // namespace

std::vector<MatrixSource*> VisionSources::linears() {
  std::vector<MatrixSource*> out;
  append_linears(*this, out);
  return out;
}

std::vector<const MatrixSource*> VisionSources::matrices() const {
  std::vector<const MatrixSource*> out{&patches.matrix};
  append_linears(*this, out);
  return out;
}

std::vector<const VectorSource*> VisionSources::vectors() const {
  std::vector<const VectorSource*> out;
  append({&patches.bias, &positions}, out);
  for (const VisionBlockSources& block : blocks) {
    append(
        {&block.norm_1.weight, &block.norm_1.bias, &block.q.bias, &block.kv.bias, &block.proj.bias,
         &block.norm_2.weight, &block.norm_2.bias, &block.up.bias, &block.down.bias},
        out);
  }
  append({&last_norm.weight, &last_norm.bias}, out);
  for (const MergerSources& merger : mergers) {
    append({&merger.norm.weight, &merger.norm.bias, &merger.up.bias, &merger.down.bias}, out);
  }
  if (!resampler) return out;
  for (const JoinSources* join : {&resampler->square, &resampler->grids}) {
    append({&join->up.bias, &join->down.bias, &join->norm.weight, &join->norm.bias}, out);
  }
  append({&resampler->out.bias, &resampler->norm.weight}, out);
  return out;
}

NormSource VisionNaming::norm(const std::string& name, const std::string& module, int64_t n,
                              bool bias) const {
  NormSource out;
  out.weight = {.name = own_ + name, .parts = {{prefix_ + module + ".weight", n}}, .is_norm = true};
  if (bias) out.bias = {.name = own_ + name + "_bias", .parts = {{prefix_ + module + ".bias", n}}};
  return out;
}

LinearSource VisionNaming::linear(const std::string& name, const std::vector<StoredPart>& modules,
                                  int64_t k, bool bias, WeightUse use) const {
  LinearSource out;
  out.matrix = {
      .name = own_ + name, .parts = modules, .k = k, .transposed = transposed_, .use = use};
  for (StoredPart& part : out.matrix.parts) part.name = prefix_ + part.name + ".weight";
  if (!bias) return out;
  out.bias = {.name = own_ + name + "_bias", .parts = modules};
  for (StoredPart& part : out.bias.parts) part.name = prefix_ + part.name + ".bias";
  return out;
}

LinearSource VisionNaming::rows(const std::string& name, const std::string& module,
                                std::pair<int64_t, int64_t> first_n, int64_t rows,
                                int64_t k) const {
  const auto& [first, n] = first_n;
  LinearSource out = linear(name, {{module, n}}, k, true);
  StoredPart& matrix = out.matrix.parts.front();
  matrix.shape = transposed_ ? std::vector<int64_t>{k, rows} : std::vector<int64_t>{rows, k};
  matrix.offset = transposed_ ? first : first * k;
  StoredPart& bias = out.bias.parts.front();
  bias.shape = {rows};
  bias.offset = first;
  return out;
}

LinearSource VisionNaming::patches(const VisionConfig& config, const std::string& module,
                                   bool frames, bool bias) const {
  const int64_t side = config.patch_size;
  const int64_t numbers = 3 * config.temporal_patch_size * side * side;
  LinearSource out = linear("patches", {{module, config.width}}, numbers, bias);
  StoredPart& part = out.matrix.parts.front();
  part.shape = {config.width, 3};
  if (frames) part.shape.push_back(config.temporal_patch_size);
  part.shape.insert(part.shape.end(), {side, side});
  return out;
}

VectorSource VisionNaming::table(const std::string& name, const std::string& tensor, int64_t rows,
                                 int64_t columns) const {
  StoredPart part{prefix_ + tensor, rows * columns};
  part.shape = {rows, columns};
  return {.name = own_ + name, .parts = {part}};
}

}  // namespace headrace
