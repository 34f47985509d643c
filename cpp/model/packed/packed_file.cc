#include "model/packed/packed_file.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "model/checkpoint/safetensors.h"
#include "model/config/config_reader.h"
#include "model/config/config_text.h"
#include "model/json/json.h"

namespace headrace {

namespace {

namespace fs = std::filesystem;

JsonValue parse_config(const std::string& text, const std::string& origin) {
  return parse_json_object(text, origin, kConfigLimits);
}

/// "rope_theta (1000.0, packed with 500.0)" of the first key that differs; "" if none does.
std::string first_difference(const JsonValue& now, const JsonValue& packed) {
  std::set<std::string> keys;
  for (const JsonValue* json : {&now, &packed}) {
    for (const auto& [key, value] : json->object()) keys.insert(key);
  }
  const auto value = [](const JsonValue& json, const std::string& key) {
    const JsonValue* found = json.find(key);
    return found != nullptr ? shown(*found) : std::string("nothing");
  };
  for (const std::string& key : keys) {
    const JsonValue *one = now.find(key), *other = packed.find(key);
    if (one != nullptr && other != nullptr && *one == *other) continue;
    return str_cat(key, " (", value(now, key), ", when packed: ", value(packed, key), ")");
  }
  return {};
}

}  // namespace

std::string read_config_identity(const fs::path& folder) {
  const std::string origin = (folder / "config.json").string();
  return ascii_json_text(parse_config(read_config_text(folder), origin));
}

std::string packed_layout(const Backend& backend, DType storage, const ModelSources& sources) {
  const std::string dense = backend.weight_layout(storage);
  for (const MatrixSource* source : sources.matrices()) {
    if (source->quant.bits == 0) continue;
    return str_cat(dense, ", ", backend.weight_layout(storage, source->quant));
  }
  return dense;
}

std::string packed_name(const std::string& name, const RankPlace& rank) {
  return rank.count == 1 ? name : str_cat(name, ".rank.", rank.index);
}

std::vector<PackedTensor> list_packed_tensors(const ModelSources& sources, const Backend& backend,
                                              DType storage) {
  std::vector<PackedTensor> out;
  for (const MatrixSource* source : sources.matrices()) {
    out.push_back(
        {.name = packed_name(source->name, sources.rank),
         .dtype = DType::kU8,
         .bytes = backend.packed_bytes(source->weight_shape(storage)),
         .quant = source->parts.front().codes == nullptr ? QuantFormat{} : source->quant});
  }
  const DType activation = backend.activation_dtype(storage);
  for (const VectorSource* source : sources.vectors()) {
    out.push_back({.name = packed_name(source->name, sources.rank),
                   .dtype = activation,
                   .bytes = static_cast<uint64_t>(source->n()) * dtype_size(activation)});
  }
  return out;
}

PackedFile::PackedFile(const fs::path& path)
    : file_(std::make_shared<MappedFile>(path, MappingUse::kKeep)) {
  const std::string text = read_safetensors_header(*file_);
  const uint64_t begin = kSafetensorsLengthBytes + text.size();
  header_ = parse_packed_header(text, file_->size() - begin, file_->path());
  if (begin % kPackedAlignment != 0) {
    throw_error(ErrorCode::kCorruptFile, this->path(), ": its tensors begin at byte ", begin,
                ", no multiple of ", kPackedAlignment, ". Pack the model again.");
  }
  const auto* at = reinterpret_cast<const std::byte*>(file_->data()) + begin;
  for (const PackedTensor& tensor : header_.tensors) {
    ranges_.emplace(tensor.name, Range{at, tensor.bytes});
    at += tensor.bytes;
  }
}

void PackedFile::check_identity(const fs::path& folder, int32_t threads,
                                const std::function<void(size_t)>& before_piece) const {
  const JsonValue now = parse_config(read_config_text(folder), (folder / "config.json").string());
  const std::string difference = first_difference(now, parse_config(header_.config, path()));
  if (!difference.empty()) {
    throw_error(ErrorCode::kInvalidState, path(), " is stale: ", (folder / "config.json").string(),
                " differs from the one it was packed with in ", difference,
                ". Pack the model again, or load it without packed weights.");
  }
  check_source(header_.source, folder, threads, path(), before_piece);
}

void PackedFile::set_formats(ModelSources& sources, const RankPlace& rank) const {
  std::map<std::string, QuantFormat, std::less<>> formats;
  for (const PackedTensor& tensor : header_.tensors) formats[tensor.name] = tensor.quant;
  const auto set = [&](MatrixSource& source, const QuantFormat& format) {
    const bool has_kernels = source.use == WeightUse::kLinear || source.use == WeightUse::kGateUp;
    if (format.float4 && (!has_kernels || source.k % format.group_size != 0)) {
      throw_error(ErrorCode::kCorruptFile, path(), ": ", in_quotes(source.name),
                  " has MXFP4 as its format, which a matrix of ", source.k,
                  " inputs or with its use can't have: pack the model again.");
    }
    source.quant = format;
  };
  for (LayerSources& layer : sources.layers) {
    for (MatrixSource* source : layer.matrices()) {
      if (source->role == MatrixRole::kLinear) {
        set(*source, formats[packed_name(source->name, rank)]);
      }
    }
  }
  const auto set_stored = [&](MatrixSource& source) {
    const QuantFormat format = formats[packed_name(source.name, rank)];
    if (format.bits != 0) set(source, format);
  };
  if (sources.mtp) {
    for (MatrixSource* source : sources.mtp->layer.matrices()) set_stored(*source);
    set_stored(sources.mtp->join);
  }
  if (!sources.head.empty()) set_stored(sources.head);
  if (!sources.vision) return;
  set_stored(sources.vision->patches.matrix);
  for (MatrixSource* source : sources.vision->linears()) set_stored(*source);
}

void PackedFile::check_layout(std::span<const ModelSources> ranks, const Backend& backend) const {
  const std::string layout = packed_layout(backend, header_.storage, ranks.front());
  if (header_.layout != layout) {
    throw_error(ErrorCode::kUnsupported, path(), " has the layout ", in_quotes(header_.layout),
                ", but the kernels in use here (", backend.device_info().isa, ") need ",
                in_quotes(layout), " for ", dtype_name(header_.storage),
                ". Pack the model again on this machine.");
  }
  std::vector<PackedTensor> wanted;
  for (const ModelSources& sources : ranks) {
    std::ranges::move(list_packed_tensors(sources, backend, header_.storage),
                      std::back_inserter(wanted));
  }
  for (const PackedTensor& want : wanted) {
    const auto found =
        std::find_if(header_.tensors.begin(), header_.tensors.end(),
                     [&want](const PackedTensor& tensor) { return tensor.name == want.name; });
    if (found == header_.tensors.end() && is_mtp_weight(want.name)) {
      throw_error(ErrorCode::kNotFound, path(), " holds no MTP block (no tensor ",
                  in_quotes(want.name), "), which speculative method mtp needs: pack a checkpoint ",
                  "that has one, or use ngram or draft_model.");
    }
    if (found == header_.tensors.end()) {
      throw_error(ErrorCode::kCorruptFile, path(), " has no tensor ", in_quotes(want.name),
                  ". Pack the model again.");
    }
    if (found->dtype != want.dtype || found->bytes != want.padded_bytes()) {
      throw_error(ErrorCode::kCorruptFile, path(), ": tensor ", in_quotes(want.name), " is ",
                  found->bytes, " bytes of ", dtype_name(found->dtype), "; this model needs ",
                  want.padded_bytes(), " of ", dtype_name(want.dtype), ". Pack the model again.");
    }
  }
  // An MTP block that isn't used stays unread.
  const auto is_mtp = [](const PackedTensor& tensor) { return is_mtp_weight(tensor.name); };
  const auto held = header_.tensors.size() -
                    static_cast<size_t>(std::ranges::count_if(header_.tensors, is_mtp)) +
                    static_cast<size_t>(std::ranges::count_if(wanted, is_mtp));
  if (held != wanted.size()) {
    throw_error(ErrorCode::kCorruptFile, path(), " has ", header_.tensors.size(),
                " tensors, this model ", wanted.size(), ". Pack the model again.");
  }
}

void PackedFile::check_contents(int32_t threads,
                                const std::function<void(size_t)>& before_piece) const {
  file_->check_size();
  std::vector<uint64_t> sizes;
  std::vector<const std::byte*> data;
  for (const PackedTensor& tensor : header_.tensors) {
    sizes.push_back(tensor.bytes);
    data.push_back(ranges_.at(tensor.name).data);
  }
  const auto hashes = parallel_hash(sizes, threads, [&](const HashPiece& piece) {
    if (before_piece) before_piece(piece.bytes);
    return content_hash(data[piece.content] + piece.offset, piece.bytes);
  });
  for (size_t i = 0; i < hashes.size(); ++i) {
    const PackedTensor& tensor = header_.tensors[i];
    if (hashes[i] == tensor.hash) continue;
    throw_error(ErrorCode::kCorruptFile, path(), ": tensor ", in_quotes(tensor.name),
                " is damaged: its content hash is ", hash_text(hashes[i]), ", not ",
                hash_text(tensor.hash), ". Pack the model again.");
  }
  file_->check_size();
}

std::unique_ptr<PackedWeight> PackedReader::matrix(const MatrixSource& source) {
  if (source.empty()) return nullptr;
  const WeightShape shape = source.weight_shape(file_.header().storage);
  return backend_.restore_weight(
      shape, contents(packed_name(source.name, rank_), backend_.packed_bytes(shape)));
}

DeviceVector PackedReader::vector(const VectorSource& source) {
  DeviceVector out;
  if (source.empty()) return out;
  const DType dtype = backend_.activation_dtype(file_.header().storage);
  out.buffer = contents(packed_name(source.name, rank_),
                        static_cast<size_t>(source.n()) * dtype_size(dtype));
  out.view = TensorView(out.buffer.data, dtype, {source.n()});
  return out;
}

Backend::Buffer PackedReader::contents(const std::string& name, size_t bytes) {
  const auto found = file_.ranges_.find(name);
  HEADRACE_CHECK(found != file_.ranges_.end() && bytes <= found->second.bytes, name);
  const std::byte* data = found->second.data;
  if (copy_) {
    Backend::Buffer buffer = backend_.allocate(bytes);
    backend_.upload(data, buffer.data, bytes);
    file_.file_->drop(data, bytes);
    return buffer;
  }
  Backend::Buffer buffer = backend_.adopt(data, bytes, file_.file_);
  if (buffer.data == data) adopted_bytes_ += bytes;
  return buffer;
}

}  // namespace headrace
