// Bytes as JSON: what nlohmann-json reads is read here, with the same values, and what it refuses
// is refused; but for a key twice, numbers beyond a double, depth and a byte order mark, which only
// one of the two minds.

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fuzz/fuzz_target.h"
#include "text/json/scanner.h"
#include "text/json/value.h"

namespace {

using headrace::InternalError;
using headrace::text::json::Value;
using Other = nlohmann::ordered_json;

constexpr int kDepth = 60;

bool same(const Value& own, const Other& other) {
  if (other.is_null()) return own.is_null();
  if (other.is_boolean()) return own.boolean() != nullptr && *own.boolean() == other.get<bool>();
  if (other.is_string())
    return own.string() != nullptr && *own.string() == other.get<std::string>();
  if (other.is_number()) {
    if (own.integer() != nullptr) {
      return other.is_number_integer() && *own.integer() == other.get<int64_t>();
    }
    return own.real() != nullptr && *own.real() == other.get<double>();
  }
  if (other.is_array()) {
    if (own.list() == nullptr || own.list()->size() != other.size()) return false;
    for (size_t i = 0; i < other.size(); ++i) {
      if (!same(own.list()->at(i), other[i])) return false;
    }
    return true;
  }
  if (own.object() == nullptr || own.object()->size() != other.size()) return false;
  size_t i = 0;
  for (const auto& [key, value] : other.items()) {
    const auto& [own_key, own_value] = own.object()->at(i++);
    if (own_key != key || !same(own_value, value)) return false;
  }
  return true;
}

bool skips(std::string_view text) {
  headrace::text::json::Scanner scanner(text, kDepth, text.size() + 1);
  scanner.skip_value();
  scanner.finish();
  return true;
}

/// Does only our own reader refuse it?
bool may_refuse(std::string_view error) {
  for (const std::string_view reason : {"a key that its object had before",
                                        "a number too large or too small", "nested too deeply"}) {
    if (error.find(reason) != error.npos) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = headrace::as_text(data, size);
  if (size > 4096 || text.starts_with("\xEF\xBB\xBF")) return 0;
  const Other other = Other::parse(text, nullptr, /*allow_exceptions=*/false);
  Value own;
  try {
    own = headrace::text::json::parse(text, {.max_depth = kDepth});
  } catch (const InternalError&) {
    throw;
  } catch (const headrace::Error& error) {
    if (!other.is_discarded() && !may_refuse(error.what())) {
      throw InternalError(std::string("refused, but JSON: ") + error.what());
    }
    return 0;
  }
  if (other.is_discarded()) throw InternalError("read, but not JSON");
  if (!same(own, other)) throw InternalError("another value");
  if (!skips(text)) throw InternalError("not skipped");
  return 0;
}
