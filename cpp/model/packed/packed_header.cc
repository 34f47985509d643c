#include "model/packed/packed_header.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "model/checkpoint/safetensors.h"
#include "model/json/json.h"

namespace headrace {

namespace {

constexpr const char* kVersionKey = "headrace_packed";
constexpr JsonLimits kPartLimits{.max_bytes = 32u << 20, .max_depth = 32, .max_values = 1u << 20};
constexpr int32_t kMostPackedRanks = 64;  // as of ModelOptions::tensor_parallel_size
// Tensors begin on a page.
constexpr size_t kDataAlignment = 4096;

const char* stored_name(DType dtype) {
  if (dtype == DType::kU8) return "U8";
  if (dtype == DType::kF32) return "F32";
  HEADRACE_CHECK(false, dtype_name(dtype));
  return "";
}

JsonValue::Object tensor_entry(const PackedTensor& tensor, uint64_t begin) {
  const uint64_t end = begin + tensor.padded_bytes();
  return {{"dtype", stored_name(tensor.dtype)},
          {"shape", JsonValue::Array{(end - begin) / dtype_size(tensor.dtype)}},
          {"data_offsets", JsonValue::Array{begin, end}}};
}

/// [bits, group size, zero points, float16 scales, reordered] by tensor, and true behind them if it
/// meets activations as they come, and true behind that if it is MXFP4.
JsonValue::Object format_list(const std::vector<PackedTensor>& tensors) {
  JsonValue::Object list;
  for (const PackedTensor& tensor : tensors) {
    const QuantFormat& quant = tensor.quant;
    if (quant.bits == 0) continue;
    JsonValue::Array format{quant.bits, quant.group_size, quant.zero_points, quant.f16_scales,
                            quant.reordered};
    if (quant.activations == Activations::kWhole) format.emplace_back(true);
    if (quant.float4) format.emplace_back(true);
    list.insert_or_assign(tensor.name, std::move(format));
  }
  return list;
}

JsonValue::Array source_list(const std::vector<SourceFile>& files) {
  JsonValue::Array list;
  for (const SourceFile& file : files) {
    list.emplace_back(JsonValue::Object{{"name", file.name},
                                        {"bytes", file.bytes},
                                        {"modified_ns", file.modified_ns},
                                        {"changed_ns", file.changed_ns},
                                        {"hash", hash_text(file.hash)}});
  }
  return list;
}

/// Reads the texts of __metadata__; every fault names the file.
class MetadataReader {
 public:
  MetadataReader(const SafetensorsMetadata& texts, const std::string& origin)
      : texts_(texts), origin_(origin) {}

  void check_version() const {
    const auto found = texts_.find(kVersionKey);
    if (found == texts_.end()) {
      throw_error(ErrorCode::kUnsupported, origin_,
                  " is not a packed file of Headrace: make one with pack_model().");
    }
    if (found->second == std::to_string(kPackedVersion)) return;
    throw_error(ErrorCode::kUnsupported, origin_, " has version ", in_quotes(found->second),
                " of the packed format, this build reads version ", kPackedVersion,
                ": pack the model again.");
  }

  const std::string& text(const char* key) const {
    const auto found = texts_.find(key);
    if (found == texts_.end()) fail(key, "is missing");
    return found->second;
  }

  JsonValue object(const char* key) const {
    return parse_json_object(text(key), str_cat(origin_, ": ", key), kPartLimits);
  }

  DType storage() const {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (text("dtype") == dtype_name(dtype)) return dtype;
    }
    fail("dtype", "is none that weights are kept in");
  }

  /// None in files from before there was any.
  Quantization quantization() const {
    if (!texts_.contains("quantization")) return {};
    const std::string name = text("quantization");
    for (const int32_t size : {0, 32, 64, 128}) {
      if (text("quantization_group_size") != std::to_string(size)) continue;
      if (name == "" && size == 0) return {};
      if ((name == "wint8" || name == "wint4") && size != 0) return parse_quantization(name, size);
    }
    fail("quantization", "is none that weights are kept in");
  }

  /// Of checkpoints that came quantized; not in files from before they could.
  QuantFormat format(const JsonValue& formats, const std::string& tensor) const {
    const JsonValue* found = formats.find(tensor);
    if (found == nullptr) return {};
    const auto fail_format = [&] {
      fail("formats", str_cat("has one that can't be for ", in_quotes(tensor)));
    };
    if (!found->is_array() || found->size() < 5 || found->size() > 7) fail_format();
    const JsonValue::Array& list = found->array();
    const auto is_one_of = [](const JsonValue& value, std::initializer_list<int> choices) {
      return std::any_of(choices.begin(), choices.end(), [&](int x) { return value == x; });
    };
    if (!is_one_of(list[0], {4, 8}) || !is_one_of(list[1], {32, 64, 128}) ||
        !std::all_of(list.begin() + 2, list.end(), [](const auto& x) { return x.is_boolean(); })) {
      fail_format();
    }
    const auto flag = [&](size_t i) { return list.size() > i && list[i].boolean(); };
    const QuantFormat format{
        .bits = static_cast<int32_t>(list[0].number()),
        .group_size = static_cast<int32_t>(list[1].number()),
        .zero_points = flag(2),
        .f16_scales = flag(3),
        .reordered = flag(4),
        .activations = flag(5) ? Activations::kWhole : Activations::kInt8Groups,
        .float4 = flag(6)};
    if (format.float4 && format != kFloat4Format) fail_format();
    return format;
  }

  /// In files from before several devices could share a model there is one.
  int32_t num_ranks() const {
    if (!texts_.contains("tensor_parallel_size")) return 1;
    const std::string& digits = text("tensor_parallel_size");
    int32_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > kMostPackedRanks) {
      fail("tensor_parallel_size", str_cat("is ", in_quotes(digits)));
    }
    return value;
  }

  bool whole_experts() const {
    if (!texts_.contains("enable_expert_parallel")) return false;
    const std::string& flag = text("enable_expert_parallel");
    if (flag != "0" && flag != "1") fail("enable_expert_parallel", "is neither 0 nor 1");
    return flag == "1";
  }

  std::vector<SourceFile> source() const {
    const JsonValue object = this->object("source");
    const JsonValue* list = object.find("files");
    if (list == nullptr || !list->is_array()) fail("source", "lists no files");
    std::vector<SourceFile> files;
    for (const JsonValue& entry : list->array()) {
      if (!entry.is_object()) fail("source", "lists something else than files");
      files.push_back({.name = string(entry, "name"),
                       .bytes = static_cast<uint64_t>(number(entry, "bytes")),
                       .modified_ns = number(entry, "modified_ns"),
                       .changed_ns = number(entry, "changed_ns"),
                       .hash = hash(entry, "hash", "source")});
    }
    return files;
  }

  uint64_t hash(const JsonValue& object, const std::string& key, const char* part) const {
    const std::string digits = string(object, key, part);
    uint64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
    if (digits.size() != 16 || error != std::errc() || stop != end) {
      fail(part, str_cat("holds ", in_quotes(digits), " where a hash belongs"));
    }
    return value;
  }

 private:
  std::string string(const JsonValue& object, const std::string& key,
                     const char* part = "source") const {
    const JsonValue* found = object.find(key);
    if (found == nullptr || !found->is_string()) fail(part, str_cat("has no ", in_quotes(key)));
    return found->text();
  }

  int64_t number(const JsonValue& object, const char* key) const {
    const JsonValue* found = object.find(key);
    const bool whole = found != nullptr && found->is_whole();
    const bool fits = whole && (!found->is_unsigned() ||
                                found->unsigned_integer() <=
                                    static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!fits) fail("source", str_cat("has no number ", key));
    return found->integer();
  }

  [[noreturn]] void fail(const char* key, const std::string& fault) const {
    throw_error(ErrorCode::kCorruptFile, origin_, ": ", key, " of its header ", fault,
                ". Pack the model again.");
  }

  const SafetensorsMetadata& texts_;
  const std::string& origin_;
};

}  // namespace

std::string format_packed_header(const PackedHeader& header) {
  JsonValue::Object hashes, json;
  uint64_t begin = 0;
  for (const PackedTensor& tensor : header.tensors) {
    json[tensor.name] = tensor_entry(tensor, begin);
    hashes[tensor.name] = hash_text(tensor.hash);
    begin += tensor.padded_bytes();
  }
  json["__metadata__"] = JsonValue::Object{
      {kVersionKey, std::to_string(kPackedVersion)},
      {"written_by", header.written_by},
      {"layout", header.layout},
      {"dtype", dtype_name(header.storage)},
      {"quantization", quantization_name(header.quantization)},
      {"quantization_group_size", std::to_string(header.quantization.group_size)},
      {"formats", json_text(format_list(header.tensors))},
      {"tensor_parallel_size", std::to_string(header.num_ranks)},
      {"enable_expert_parallel", header.whole_experts ? "1" : "0"},
      {"config", header.config},
      {"source", json_text(JsonValue::Object{{"files", source_list(header.source)}})},
      {"hashes", json_text(hashes)}};
  std::string text = json_text(json);
  const size_t length = kSafetensorsLengthBytes + text.size();
  text.append((kDataAlignment - length % kDataAlignment) % kDataAlignment, ' ');
  HEADRACE_CHECK(text.size() <= kMaxSafetensorsHeader, text.size());
  std::string out;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    out += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 255);
  }
  return out + text;
}

PackedHeader parse_packed_header(std::string_view header, uint64_t data_bytes,
                                 const std::string& origin) {
  SafetensorsMetadata texts;
  const auto entries = parse_safetensors_header(header, data_bytes, origin, &texts);
  const MetadataReader reader(texts, origin);
  reader.check_version();
  PackedHeader out;
  out.written_by = reader.text("written_by");
  out.layout = reader.text("layout");
  out.storage = reader.storage();
  out.quantization = reader.quantization();
  out.num_ranks = reader.num_ranks();
  out.whole_experts = reader.whole_experts();
  out.config = reader.text("config");
  out.source = reader.source();
  const JsonValue hashes = reader.object("hashes");
  const JsonValue formats = texts.contains("formats") ? reader.object("formats") : JsonValue();
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin % kPackedAlignment != 0) {
      throw_error(ErrorCode::kCorruptFile, origin, ": tensor ", in_quotes(entry.name),
                  " does not begin at a multiple of ", kPackedAlignment, ".");
    }
    out.tensors.push_back({.name = entry.name,
                           .dtype = entry.dtype,
                           .bytes = entry.end - entry.begin,
                           .hash = reader.hash(hashes, entry.name, "hashes"),
                           .quant = reader.format(formats, entry.name)});
  }
  return out;
}

}  // namespace headrace
