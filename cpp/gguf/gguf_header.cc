#include "gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "gguf/in_marks.h"

namespace headrace {

namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint64_t kMostKeys = 64u << 10, kMostTensors = 1u << 20;
constexpr uint64_t kMostKeyBytes = 65535, kMostNameBytes = 127, kMostTextBytes = 64u << 20;
constexpr uint64_t kMostHeaderBytes = 1u << 30, kMostAlignment = 1u << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMostDims = 4;
// Smallest entries: an empty key with its type and one byte; an empty name, dims, type, offset.
constexpr uint64_t kKeyBytes = 8 + 4 + 1, kTensorBytes = 8 + 4 + 4 + 8;

/// Reads from front to back; every read is checked against what remains.
class Reader {
 public:
  Reader(std::string_view file, const std::string& origin)
      : file_(file), limit_(std::min<uint64_t>(file.size(), kMostHeaderBytes)), origin_(origin) {}

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, bytes(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::string_view bytes(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      fail(str_cat(what, " at byte ", at_, " takes ", count, " bytes, but ", remaining(),
                   " are left", file_.size() > limit_ ? " of the 1 GiB that a header may have" : "",
                   ": get the file again"));
    }
    const std::string_view out = file_.substr(at_, count);
    at_ += count;
    return out;
  }

  std::string_view text(uint64_t most, std::string_view what) {
    const auto size = number<uint64_t>(what);
    if (size > most) fail(str_cat(what, " has ", size, " bytes; at most ", most, " are read"));
    return bytes(size, what);
  }

  uint64_t count(uint64_t most, uint64_t smallest, const char* what) {
    const auto value = number<uint64_t>(what);
    if (value > most || value > file_.size() / smallest) {
      fail(str_cat("says that it has ", value, " ", what, ", more than ",
                   value > most ? "are read" : "fit into it"));
    }
    return value;
  }

  uint64_t at() const noexcept { return at_; }
  uint64_t remaining() const noexcept { return limit_ - at_; }

  [[noreturn]] void fail(const std::string& fault) const {
    throw_error(ErrorCode::kCorruptFile, origin_, ": ", fault, ".");
  }

 private:
  std::string_view file_;
  uint64_t limit_, at_ = 0;
  const std::string& origin_;
};

GgufType read_type(Reader& in, const std::string& where) {
  const auto type = in.number<uint32_t>(where);
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    in.fail(str_cat(where, " has the unknown type ", type));
  }
  return static_cast<GgufType>(type);
}

void check_bools(Reader& in, std::string_view bytes, const std::string& where) {
  for (const char byte : bytes) {
    if (byte != 0 && byte != 1) {
      in.fail(str_cat(where, " holds ", int{static_cast<uint8_t>(byte)},
                      ", which is neither true nor false"));
    }
  }
}

GgufValue read_elements(Reader& in, std::string_view file, GgufType type, bool is_array,
                        uint64_t count, const std::string& where) {
  const uint64_t begin = in.at();
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) in.text(kMostTextBytes, where);
  } else {
    const auto bytes = checked_mul(count, gguf_type_size(type));
    if (!bytes) in.fail(str_cat(where, " has ", count, " elements"));
    const std::string_view read = in.bytes(*bytes, where);
    if (type == GgufType::kBool) check_bools(in, read, where);
  }
  return {type, is_array, count, file.substr(begin, in.at() - begin)};
}

GgufValue read_value(Reader& in, std::string_view file, const std::string& where) {
  const GgufType type = read_type(in, where);
  if (type != GgufType::kArray) return read_elements(in, file, type, false, 1, where);
  const GgufType element = read_type(in, where);
  if (element == GgufType::kArray) in.fail(str_cat(where, " holds arrays of arrays"));
  return read_elements(in, file, element, true, in.number<uint64_t>(where), where);
}

void read_version(Reader& in, const std::string& origin) {
  if (in.bytes(kMagic.size(), "the magic number") != kMagic) in.fail("doesn't begin with GGUF");
  const auto version = in.number<uint32_t>("the version");
  if (version == 2 || version == 3) return;
  const bool swapped = (version & 0xffff) == 0 && version != 0;
  throw_error(ErrorCode::kUnsupported, origin, ": ",
              swapped ? "is big-endian: get the little-endian file"
                      : str_cat("is of GGUF version ", version,
                                "; versions 2 and 3 are read: convert it with a current llama.cpp"),
              ".");
}

/// Of a tensor by its shape. Nothing: it overflows.
std::optional<uint64_t> bytes_of(const GgufTensor& tensor, const BlockTraits& traits) {
  std::optional<uint64_t> blocks = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const bool last = i + 1 == tensor.shape.size();
    const auto dim =
        static_cast<uint64_t>(last ? tensor.shape[i] / traits.numbers : tensor.shape[i]);
    blocks = checked_mul(*blocks, dim);
    if (!blocks) return std::nullopt;
  }
  // Numbers are counted with int64_t, too.
  const auto numbers = checked_mul(*blocks, static_cast<uint64_t>(traits.numbers));
  if (!numbers || *numbers > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
  return checked_mul(*blocks, static_cast<uint64_t>(traits.bytes));
}

/// All but where it lies; `begin` is what the file says, which counts from the data's.
GgufTensor read_tensor(Reader& in, const std::string& origin) {
  GgufTensor tensor;
  tensor.name = in.text(kMostNameBytes, "a tensor's name");
  const std::string where = str_cat("tensor ", in_marks(tensor.name));
  const auto dims = in.number<uint32_t>(where);
  if (dims > kMostDims) in.fail(str_cat(where, " has ", dims, " dimensions; at most 4 are read"));
  for (uint32_t i = 0; i < dims; ++i) {
    const auto dim = in.number<uint64_t>(where);
    if (dim == 0 || dim > uint64_t{std::numeric_limits<int64_t>::max()}) {
      in.fail(str_cat(where, " has the impossible dimension ", dim));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  if (tensor.shape.empty()) tensor.shape.push_back(1);
  const BlockTraits& traits =
      block_traits(in.number<uint32_t>(where), str_cat(origin, ": ", where));
  tensor.type = traits.type;
  if (tensor.shape.back() % traits.numbers != 0) {
    in.fail(str_cat(where, " has rows of ", tensor.shape.back(), " numbers, but ", traits.name,
                    " has blocks of ", traits.numbers));
  }
  const auto bytes = bytes_of(tensor, traits);
  if (!bytes) in.fail(str_cat(where, " has a shape whose size overflows"));
  tensor.bytes = *bytes;
  tensor.begin = in.number<uint64_t>(where);
  return tensor;
}

uint64_t read_alignment(const GgufHeader& header) {
  const int64_t alignment = header.integer(kAlignmentKey, kDefaultAlignment);
  if (alignment <= 0 || alignment > int64_t{kMostAlignment} ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    header.fail(kAlignmentKey, str_cat("is ", alignment, ": must be a power of two up to 1 MiB"));
  }
  return static_cast<uint64_t>(alignment);
}

/// Tensors follow each other in the order of the list, each from a multiple of the alignment on.
void place_tensors(Reader& in, uint64_t file_bytes, GgufHeader* header) {
  const uint64_t alignment = read_alignment(*header);
  const uint64_t data = round_up(in.at(), alignment);
  uint64_t offset = 0;
  for (GgufTensor& tensor : header->tensors) {
    const std::string where = str_cat("tensor ", in_marks(tensor.name));
    if (tensor.begin != offset) {
      in.fail(str_cat(where, " begins at ", tensor.begin, " of the data instead of ", offset,
                      ", where the one before it ends"));
    }
    // Sizes stay far below 2^64: data and offset are within the file.
    if (data > file_bytes || tensor.bytes > file_bytes - data ||
        offset > file_bytes - data - tensor.bytes) {
      in.fail(str_cat(where, " takes ", tensor.bytes,
                      " bytes, more than the file has left: it is "
                      "cut off. Get it again"));
    }
    tensor.begin = data + offset;
    offset = round_up(offset + tensor.bytes, alignment);
  }
}

}  // namespace

bool is_gguf(std::string_view bytes) { return bytes.starts_with(kMagic); }

GgufHeader parse_gguf(std::string_view file, const std::string& origin) {
  Reader in(file, origin);
  read_version(in, origin);
  const uint64_t num_tensors = in.count(kMostTensors, kTensorBytes, "tensors");
  const uint64_t num_keys = in.count(kMostKeys, kKeyBytes, "keys");
  GgufHeader header;
  header.origin = origin;
  for (uint64_t i = 0; i < num_keys; ++i) {
    const std::string_view key = in.text(kMostKeyBytes, "a key");
    if (key.empty()) in.fail("has a key without a name");
    const std::string where = str_cat("key ", in_marks(key));
    if (!header.values.emplace(key, read_value(in, file, where)).second) {
      in.fail(str_cat("has ", where, " twice"));
    }
  }
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    header.tensors.push_back(read_tensor(in, origin));
    if (!names.insert(header.tensors.back().name).second) {
      in.fail(str_cat("has tensor ", in_marks(header.tensors.back().name), " twice"));
    }
  }
  place_tensors(in, file.size(), &header);
  return header;
}

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

void GgufHeader::fail(std::string_view key, const std::string& fault) const {
  throw_error(ErrorCode::kCorruptFile, origin, ": key ", in_marks(key), " ", fault, ".");
}

template <class T>
T GgufHeader::read(std::string_view key, T otherwise, std::optional<T> (GgufValue::*as)() const,
                   const char* fault) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return otherwise;
  const std::optional<T> found = (value->*as)();
  if (!found) fail(key, fault);
  return *found;
}

int64_t GgufHeader::integer(std::string_view key, int64_t otherwise) const {
  return read(key, otherwise, &GgufValue::integer, "is not a whole number");
}

double GgufHeader::number(std::string_view key, double otherwise) const {
  return read(key, otherwise, &GgufValue::number, "is not a number");
}

bool GgufHeader::boolean(std::string_view key, bool otherwise) const {
  return read(key, otherwise, &GgufValue::boolean, "is neither true nor false");
}

std::string GgufHeader::text(std::string_view key, std::string_view otherwise) const {
  return std::string(read(key, otherwise, &GgufValue::text, "is not a text"));
}

}  // namespace headrace
