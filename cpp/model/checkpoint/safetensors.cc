#include "model/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/mapped_file.h"
#include "model/json/json.h"

namespace headrace {

namespace {

constexpr JsonLimits kHeaderLimits{
    .max_bytes = kMaxSafetensorsHeader, .max_depth = 3, .max_values = 4u << 20};
constexpr JsonLimits kIndexLimits{.max_bytes = 64u << 20, .max_depth = 8, .max_values = 4u << 20};

constexpr std::array<std::pair<std::string_view, DType>, 11> kDTypes{{
    {"F32", DType::kF32},
    {"BF16", DType::kBF16},
    {"F16", DType::kF16},
    {"F64", DType::kF64},
    {"I64", DType::kI64},
    {"I32", DType::kI32},
    {"I16", DType::kI16},
    {"I8", DType::kI8},
    {"U8", DType::kU8},
    {"BOOL", DType::kBool},
    {"F8_E4M3", DType::kF8E4M3},
}};
constexpr std::array<std::string_view, 12> kOtherDTypes{
    "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2",
    "F4",      "U16",     "U32",         "U64",         "C64",     "E8M0"};

/// Reads one tensor's entry; every fault names the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& origin, const std::string& name, const JsonValue& fields)
      : origin_(origin), name_(name), fields_(fields) {}

  SafetensorsEntry read() const {
    if (!fields_.is_object() || fields_.size() != 3) {
      fail("is not an object of dtype, shape and data_offsets");
    }
    SafetensorsEntry entry;
    entry.name = name_;
    entry.dtype = dtype();
    for (const JsonValue& dim : list("shape")) {
      const uint64_t value = number(dim, "shape");
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(str_cat("has the impossible dimension ", value));
      }
      entry.shape.push_back(static_cast<int64_t>(value));
    }
    const JsonValue::Array& offsets = list("data_offsets");
    if (offsets.size() != 2) fail(str_cat("has ", offsets.size(), " data_offsets instead of 2"));
    entry.begin = number(offsets[0], "data_offsets");
    entry.end = number(offsets[1], "data_offsets");
    return entry;
  }

  /// shape x dtype must be the byte count.
  void check_bytes(const SafetensorsEntry& entry) const {
    if (entry.begin > entry.end) fail(str_cat("begins at ", entry.begin, ", behind its end"));
    std::optional<uint64_t> bytes = dtype_size(entry.dtype);
    for (const int64_t dim : entry.shape) {
      bytes = checked_mul(*bytes, static_cast<uint64_t>(dim));
      if (!bytes) fail("has a shape whose size overflows");
    }
    if (*bytes != entry.end - entry.begin) {
      fail(
          str_cat("needs ", *bytes, " bytes by shape and dtype but has ", entry.end - entry.begin));
    }
  }

  [[noreturn]] void fail(const std::string& fault) const {
    throw_error(ErrorCode::kCorruptFile, origin_, ": tensor ", in_quotes(name_), " ", fault, ".");
  }

 private:
  const JsonValue& field(const char* key) const {
    const JsonValue* found = fields_.find(key);
    if (found == nullptr) fail(str_cat("has no ", key));
    return *found;
  }

  const JsonValue::Array& list(const char* key) const {
    const JsonValue& value = field(key);
    if (!value.is_array()) fail(str_cat("has a ", key, " that is no list"));
    return value.array();
  }

  uint64_t number(const JsonValue& value, const char* key) const {
    if (!value.is_unsigned()) {
      fail(str_cat("has ", shown(value), " in ", key, ", where a whole number >= 0 belongs"));
    }
    return value.unsigned_integer();
  }

  DType dtype() const {
    const JsonValue& value = field("dtype");
    if (!value.is_string()) fail("has a dtype that is no string");
    const std::string& text = value.text();
    for (const auto& [key, dtype] : kDTypes) {
      if (key == text) return dtype;
    }
    if (std::find(kOtherDTypes.begin(), kOtherDTypes.end(), text) != kOtherDTypes.end()) {
      throw_error(ErrorCode::kUnsupported, origin_, ": tensor ", in_quotes(name_), " has dtype ",
                  text,
                  ", which this build cannot use. Load a float32, bfloat16 or float16 checkpoint.");
    }
    fail(str_cat("has the unknown dtype ", in_quotes(text)));
  }

  const std::string& origin_;
  const std::string& name_;
  const JsonValue& fields_;
};

SafetensorsMetadata read_metadata(const JsonValue& metadata, const std::string& origin) {
  const auto is_text = [](const auto& member) { return member.second.is_string(); };
  if (!metadata.is_object() || !std::ranges::all_of(metadata.object(), is_text)) {
    throw_error(ErrorCode::kCorruptFile, origin, ": __metadata__ is not an object of strings.");
  }
  SafetensorsMetadata texts;
  for (const auto& [key, value] : metadata.object()) texts.emplace(key, value.text());
  return texts;
}

void check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes,
                    const std::string& origin) {
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      throw_error(ErrorCode::kCorruptFile, origin, ": tensor ", in_quotes(entry.name),
                  " begins at ", entry.begin,
                  entry.begin < covered ? ", inside" : ", leaving a gap behind",
                  " the tensor before it, which ends at ", covered, ".");
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw_error(ErrorCode::kCorruptFile, origin, " has ", data_bytes,
                " bytes of tensor data, but its header describes ", covered,
                covered > data_bytes ? ": the file is cut short. Get it again."
                                     : ": the rest belongs to no tensor.");
  }
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

std::string read_safetensors_header(const MappedFile& file) {
  if (file.size() < kSafetensorsLengthBytes) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " has ", file.size(),
                " bytes: too short for a safetensors file.");
  }
  uint8_t raw[kSafetensorsLengthBytes];
  file.read(0, raw, sizeof raw);
  uint64_t length = 0;
  for (size_t i = 0; i < sizeof raw; ++i) length |= static_cast<uint64_t>(raw[i]) << (8 * i);
  if (length > kMaxSafetensorsHeader) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " claims a header of ", length,
                " bytes; at most ", kMaxSafetensorsHeader, " are accepted.");
  }
  if (length > file.size() - kSafetensorsLengthBytes) {
    throw_error(ErrorCode::kCorruptFile, file.path(), " has ", file.size(),
                " bytes, fewer than its header of ", length,
                " bytes needs: the file is cut short. Get it again.");
  }
  std::string header(length, '\0');
  file.read(kSafetensorsLengthBytes, header.data(), header.size());
  return header;
}

std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                                       const std::string& origin,
                                                       SafetensorsMetadata* metadata) {
  if (header.empty() || header.front() != '{') {
    throw_error(ErrorCode::kCorruptFile, origin, ": the header does not begin with '{'.");
  }
  const JsonValue json = parse_json_object(header, origin, kHeaderLimits);
  std::vector<SafetensorsEntry> entries;
  entries.reserve(json.size());
  for (const auto& [name, fields] : json.object()) {
    if (name == "__metadata__") {
      SafetensorsMetadata texts = read_metadata(fields, origin);
      if (metadata != nullptr) *metadata = std::move(texts);
      continue;
    }
    const EntryReader reader(origin, name, fields);
    entries.push_back(reader.read());
    reader.check_bytes(entries.back());
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_coverage(entries, data_bytes, origin);
  return entries;
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                           const std::string& origin) {
  const JsonValue json = parse_json_object(text, origin, kIndexLimits);
  const JsonValue* found = json.find("weight_map");
  if (found == nullptr || !found->is_object() || found->empty()) {
    throw_error(ErrorCode::kCorruptFile, origin, " has no weight_map of tensors.");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : found->object()) {
    if (!file.is_string() || !is_plain_file_name(file.text())) {
      throw_error(ErrorCode::kCorruptFile, origin, ": tensor ", in_quotes(tensor), " lies in ",
                  shown(file), ", which is not the name of a file in the same folder.");
    }
    shards.emplace(tensor, file.text());
  }
  return shards;
}

}  // namespace headrace
