#pragma once

// Arrays that callers give: a pointer and a count.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "c_api/c_error.h"

namespace headrace::c_api {

/// No request is near it, and sums of such lengths fit.
inline constexpr size_t kMaxLength = std::numeric_limits<int32_t>::max();

template <class T>
std::span<const T> array(const T* data, size_t count, const char* field) {
  if (count > kMaxLength) {
    throw_error(ErrorCode::kLimitExceeded, "the length of ", field, " is ", count,
                ", more than any request has.");
  }
  if (count > 0) deref(data, field);
  return {data, count};
}

inline std::vector<std::string> to_texts(const char* const* texts, size_t count,
                                         const char* field) {
  std::vector<std::string> out;
  for (const char* each : array(texts, count, field)) out.emplace_back(or_empty(each));
  return out;
}

inline std::vector<int32_t> to_ids(const int32_t* ids, size_t count, const char* field) {
  const auto span = array(ids, count, field);
  return {span.begin(), span.end()};
}

}  // namespace headrace::c_api
