#include "model/load/load_lora_adapter.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/expect_tensor.h"
#include "model/families/family.h"
#include "model/families/wrapper.h"
#include "model/json/json.h"
#include "model/load/list_sources.h"
#include "model/lora/lora_config.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kPickleFile = "adapter_model.bin";
constexpr uint64_t kMaxConfigBytes = 4u << 20;
constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kMerge =
    ". Merge such an adapter into its model (PEFT's merge_and_unload) and serve the result";

/// Rows of a module, from `row` on, and the columns of a linear's output that they are.
struct SiteRows {
  int64_t row = 0, column = 0, count = 0;
};

/// A linear of the model, or a part of one, that adapters may name.
struct Site {
  int32_t layer = 0;
  int32_t number = kNoSite;    ///< MatrixSource::site
  int64_t n = 0, k = 0;        ///< of the module
  std::vector<SiteRows> rows;  ///< by ascending column
};

/// By module path.
using Sites = std::map<std::string, Site, std::less<>>;

void add_sites(const MatrixSource& matrix, int32_t layer, Sites& sites) {
  int64_t column = 0;
  for (const StoredPart& part : matrix.parts) {
    Site& site = sites[part.name.substr(0, part.name.rfind('.'))];
    site.layer = layer;
    site.number = matrix.site;
    site.n = part.shape.empty() ? part.n : part.shape.front();
    site.k = matrix.k;
    site.rows.push_back({part.offset / matrix.k, column, part.n});
    column += part.n;
  }
}

/// In every naming that the family's checkpoints have.
Sites list_sites(const ModelConfig& config) {
  std::vector<TensorNaming> namings;
  const Family* family = find_family(config.model_type);
  std::vector<const char*> prefixes;
  if (family != nullptr) {
    prefixes = family->vision != nullptr ? family->vision->text_prefixes : family->prefixes;
  }
  if (const Wrapper* wrapper = find_wrapper(config.wrapper)) {
    prefixes.insert(prefixes.end(), wrapper->prefixes.begin(), wrapper->prefixes.end());
  }
  for (const char* prefix : prefixes) {
    namings.push_back(family->torch_naming(prefix));
  }
  if (family != nullptr && family->has_paddle_layout) {
    for (const char* prefix : {"model.", "ernie."}) {
      namings.push_back({CheckpointLayout::kPaddle, prefix});
    }
  }
  Sites sites;
  for (const TensorNaming& naming : namings) {
    Sites own;
    const ModelSources sources = list_sources(config, naming);
    for (size_t layer = 0; layer < sources.layers.size(); ++layer) {
      for (const MatrixSource* matrix : sources.layers[layer].matrices()) {
        if (matrix->adaptable) add_sites(*matrix, static_cast<int32_t>(layer), own);
      }
    }
    sites.merge(own);
  }
  return sites;
}

/// The two tensors of one adapted module.
struct Module {
  std::string path;
  Site site;
  const CheckpointTensor* a = nullptr;
  const CheckpointTensor* b = nullptr;
  int32_t rank = 0;
};

/// Finds out what a file's tensors are for, and that they fit the model.
class AdapterReader {
 public:
  AdapterReader(const ModelConfig& config, const LoraConfig& lora, int32_t max_rank)
      : lora_(lora), max_rank_(max_rank), sites_(list_sites(config)) {}

  std::vector<Module> read(const Checkpoint& checkpoint) {
    for (const CheckpointTensor& tensor : checkpoint.tensors()) add(tensor);
    std::vector<Module> out;
    for (auto& [path, module] : modules_) {
      check(module);
      out.push_back(std::move(module));
    }
    if (out.empty()) {
      throw_error(ErrorCode::kCorruptFile, kWeightsFile, " holds no tensors.");
    }
    std::sort(out.begin(), out.end(), [](const Module& x, const Module& y) {
      return std::pair(x.site.layer, x.site.rows.front().column) <
             std::pair(y.site.layer, y.site.rows.front().column);
    });
    check_overlaps(out);
    return out;
  }

 private:
  void add(const CheckpointTensor& tensor) {
    std::string_view path = tensor.name;
    if (!path.starts_with(kPrefix)) refuse(tensor, "PEFT's names begin with base_model.model.");
    path.remove_prefix(kPrefix.size());
    bool is_a = false, known = false;
    for (const auto& [ending, a] :
         {std::pair(".lora_A.weight", true), std::pair(".lora_A.default.weight", true),
          std::pair(".lora_B.weight", false), std::pair(".lora_B.default.weight", false)}) {
      if (!path.ends_with(ending)) continue;
      path.remove_suffix(std::string_view(ending).size());
      is_a = a;
      known = true;
      break;
    }
    if (!known) {
      refuse(tensor, str_cat("only the weights of lora_A and lora_B are supported", kMerge));
    }
    const auto site = sites_.find(path);
    if (site == sites_.end()) {
      refuse(tensor,
             str_cat("this model has no such linear. The projections of its layers' attention, "
                     "states and MLPs can be adapted; embedding, pooler, head, routers and experts "
                     "can't",
                     kMerge));
    }
    Module& module = modules_[std::string(path)];
    module.path = path;
    module.site = site->second;
    const CheckpointTensor*& place = is_a ? module.a : module.b;
    if (place != nullptr) refuse(tensor, "the file has these weights twice");
    place = &tensor;
  }

  void check(Module& module) const {
    for (const auto& [tensor, other] :
         {std::pair(module.a, "lora_B"), std::pair(module.b, "lora_A")}) {
      if (tensor != nullptr) continue;
      throw_error(ErrorCode::kCorruptFile, kWeightsFile, ": ", in_quotes(module.path), " has ",
                  other, " but not its other half.");
    }
    if (!lora_.targets(module.path, module.site.layer)) {
      refuse(*module.a,
             "target_modules and layers_to_transform of adapter_config.json leave it out");
    }
    module.rank = lora_.rank_of(module.path);
    check_shape(*module.a, {module.rank, module.site.k});
    check_shape(*module.b, {module.site.n, module.rank});
    if (module.rank > max_rank_) {
      throw_error(ErrorCode::kLimitExceeded, kWeightsFile, ": ", in_quotes(module.path),
                  " has the rank ", module.rank, "; max_lora_rank is ", max_rank_,
                  ": raise it when the model is installed.");
    }
  }

  static void check_shape(const CheckpointTensor& tensor, const std::vector<int64_t>& shape) {
    if (tensor.shape != shape) {
      throw_error(ErrorCode::kCorruptFile, kWeightsFile, ": tensor ", in_quotes(tensor.name),
                  " has the shape ", shape_text(tensor.shape), "; rank and model ask for ",
                  shape_text(shape), ".");
    }
    const DType dtype = tensor.dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16 &&
        dtype != DType::kF64) {
      refuse(tensor, str_cat("it is stored as ", dtype_name(dtype),
                             ", not as float32, bfloat16, float16 or float64"));
    }
  }

  // A fused module and one of its parts; sorted by column within a layer, all linears mixed.
  static void check_overlaps(const std::vector<Module>& modules) {
    for (size_t i = 0; i < modules.size(); ++i) {
      for (size_t j = i + 1; j < modules.size(); ++j) {
        const Site &x = modules[i].site, &y = modules[j].site;
        if (y.layer != x.layer) break;
        if (y.number != x.number || !overlap(x.rows, y.rows)) continue;
        refuse(*modules[j].a, str_cat("it adapts the same weights as ", modules[i].path));
      }
    }
  }

  static bool overlap(const std::vector<SiteRows>& a, const std::vector<SiteRows>& b) {
    return std::ranges::any_of(a, [&](const SiteRows& x) {
      return std::ranges::any_of(b, [&](const SiteRows& y) {
        return x.column < y.column + y.count && y.column < x.column + x.count;
      });
    });
  }

  [[noreturn]] static void refuse(const CheckpointTensor& tensor, const std::string& why) {
    throw_error(ErrorCode::kUnsupported, kWeightsFile, ": tensor ", in_quotes(tensor.name), ": ",
                why, ".");
  }

  const LoraConfig& lora_;
  int32_t max_rank_;
  Sites sites_;
  std::map<std::string, Module> modules_;
};

WeightPart as_part(const CheckpointTensor& tensor) {
  return {.data = tensor.data,
          .dtype = tensor.dtype,
          .n = tensor.shape[0],
          .k = tensor.shape[1],
          .transposed = false,
          .row_stride = tensor.shape[1],
          .name = tensor.name};
}

LoraConfig read_config(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw_error(ErrorCode::kNotFound, folder.string(), " is not a folder: name one with ",
                kConfigFile, " and ", kWeightsFile, ".");
  }
  return parse_lora_config(read_small_file(folder / kConfigFile, kMaxConfigBytes));
}

Checkpoint open_weights(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / kWeightsFile;
  if (!fs::exists(file, ignored) && fs::exists(folder / kPickleFile, ignored)) {
    throw_error(ErrorCode::kUnsupported, (folder / kPickleFile).string(),
                " is a pickle, which can run code: save the adapter as ", kWeightsFile,
                " (PEFT's save_pretrained does).");
  }
  return Checkpoint(Checkpoint::SingleFile{file});
}

/// A module's rows by the columns of a linear as a rank has it.
std::vector<SiteRows> rows_on(const AdaptedLinear& linear, const Site& site) {
  if (linear.slice == nullptr) return site.rows;
  std::vector<SiteRows> out;
  int64_t column = 0;
  for (const SourceRange& range : linear.slice->rows) {
    for (const SiteRows& rows : site.rows) {
      const int64_t first = std::max(range.first, rows.column);
      const int64_t end = std::min(range.first + range.count, rows.column + rows.count);
      if (first >= end) continue;
      out.push_back({rows.row + first - rows.column, column + first - range.first, end - first});
    }
    column += range.count;
  }
  return out;
}

/// Memory for rows of lora_B that a linear has in another order.
using RowCopies = std::vector<std::vector<std::byte>>;

/// Those rows of lora_B, one behind the other.
WeightPart gather_rows(const CheckpointTensor& b, std::span<const SiteRows> pieces,
                       RowCopies& copies) {
  WeightPart out = as_part(b);
  out.n = 0;
  const size_t row = static_cast<size_t>(out.row_stride) * dtype_size(out.dtype);
  const auto* from = static_cast<const std::byte*>(b.data);
  std::vector<std::byte> copy;
  for (const SiteRows& piece : pieces) {
    const std::byte* first = from + static_cast<size_t>(piece.row) * row;
    if (out.n == 0) out.data = first;
    if (pieces.size() > 1) {
      copy.insert(copy.end(), first, first + static_cast<size_t>(piece.count) * row);
    }
    out.n += piece.count;
  }
  if (pieces.size() > 1) out.data = copies.emplace_back(std::move(copy)).data();
  return out;
}

/// What a module adds to a linear: of a rank's part of it what concerns that. Neighbouring columns
/// are one part.
void add_parts(const AdaptedLinear& linear, const Module& module, float scale, RowCopies& copies,
               std::vector<LoraPart>& out) {
  WeightPart a = as_part(*module.a);
  if (linear.slice != nullptr) {
    a.data = static_cast<const std::byte*>(a.data) +
             static_cast<size_t>(linear.slice->first_input) * dtype_size(a.dtype);
    a.k = linear.k;
  }
  const std::vector<SiteRows> all = rows_on(linear, module.site);
  for (size_t first = 0; first < all.size();) {
    size_t end = first + 1;
    while (end < all.size() && all[end].column == all[end - 1].column + all[end - 1].count) ++end;
    const std::span<const SiteRows> pieces(all.data() + first, end - first);
    out.push_back({a, gather_rows(*module.b, pieces, copies), all[first].column, scale});
    first = end;
  }
}

std::vector<std::unique_ptr<PackedLora>> pack(const LoraPlace& place, DType storage,
                                              const LoraConfig& config,
                                              const Checkpoint& checkpoint,
                                              const std::vector<Module>& modules) {
  std::vector<std::unique_ptr<PackedLora>> linears(place.linears.size());
  for (auto first = modules.begin(); first != modules.end(); ++first) {
    std::unique_ptr<PackedLora>& packed = linears[static_cast<size_t>(first->site.number)];
    if (packed != nullptr) continue;
    const AdaptedLinear& linear = place.linears[static_cast<size_t>(first->site.number)];
    LoraSpec spec{{}, linear.n, linear.k, storage};
    RowCopies copies;
    for (auto module = first; module != modules.end(); ++module) {
      const Site& site = module->site;
      if (site.layer != first->site.layer) break;
      if (site.number != first->site.number) continue;
      add_parts(linear, *module, config.scale_of(module->path), copies, spec.parts);
    }
    checkpoint.check_unchanged();
    if (!spec.parts.empty()) packed = place.backend->pack_lora(spec);
  }
  checkpoint.check_unchanged();
  return linears;
}

}  // namespace

std::vector<AdaptedLinear> list_adapted(const ModelSources& sources) {
  std::vector<AdaptedLinear> out(static_cast<size_t>(sources.num_sites));
  for (const LayerSources& layer : sources.layers) {
    for (const MatrixSource* matrix : layer.matrices()) {
      if (!matrix->adaptable) continue;
      out[static_cast<size_t>(matrix->site)] = {matrix->n(), matrix->k, matrix->slice};
    }
  }
  return out;
}

std::unique_ptr<const LoraAdapter> load_lora_adapter(std::shared_ptr<Backend> backend,
                                                     const ModelConfig& config, DType storage,
                                                     int32_t max_rank, const fs::path& folder) {
  const LoraPlace place{std::move(backend),
                        list_adapted(list_sources(config, likely_naming(config)))};
  return load_lora_adapter({&place, 1}, config, storage, max_rank, folder);
}

std::unique_ptr<const LoraAdapter> load_lora_adapter(std::span<const LoraPlace> ranks,
                                                     const ModelConfig& config, DType storage,
                                                     int32_t max_rank, const fs::path& folder) {
  const LoraConfig lora = read_config(folder);
  const Checkpoint checkpoint = open_weights(folder);
  const std::vector<Module> modules = AdapterReader(config, lora, max_rank).read(checkpoint);
  int32_t rank = 0;
  for (const Module& module : modules) rank = std::max(rank, module.rank);
  std::unique_ptr<LoraAdapter> out;
  for (const LoraPlace& place : ranks) {
    auto own = std::make_unique<LoraAdapter>(place.backend,
                                             pack(place, storage, lora, checkpoint, modules), rank,
                                             static_cast<int32_t>(modules.size()));
    if (out == nullptr) {
      out = std::move(own);
    } else {
      out->add_rank(std::move(own));
    }
  }
  return out;
}

size_t plan_lora_bytes(const ModelConfig& config, DType storage, int32_t rank,
                       const RankPlace& place) {
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(place, sources);
  int64_t numbers = 0;
  for (const LayerSources& layer : sources.layers) {
    for (const MatrixSource* matrix : layer.matrices()) {
      if (!matrix->adaptable) continue;
      numbers += adapter_parts(*matrix) * rank * matrix->k + rank * matrix->n();
    }
  }
  return static_cast<size_t>(numbers) * dtype_size(storage);
}

}  // namespace headrace
