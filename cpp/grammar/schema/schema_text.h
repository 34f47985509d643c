#pragma once

// A JSON schema as it was written, and messages that say where in it something is wrong.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/json/value.h"

namespace headrace::grammar {

using text::json::Value;

/// Schemas that hold together, none twice.
using Schemas = std::vector<const Value*>;

class SchemaText {
 public:
  /// Throws Error(kInvalidArgument).
  SchemaText(std::string_view text, size_t max_bytes);
  SchemaText(const SchemaText&) = delete;
  SchemaText& operator=(const SchemaText&) = delete;

  const Value& root() const { return root_; }
  /// What `$ref` of a schema names. Throws Error: kUnsupported, kInvalidArgument.
  const Value& target(const Value& schema, std::string_view reference) const;

  /// Throws Error(kInvalidArgument): "KEYWORD at PATH WHAT".
  [[noreturn]] void wrong(const Value& schema, std::string_view keyword,
                          std::string_view what) const;
  /// Throws Error(kUnsupported): "KEYWORD at PATH WHAT".
  [[noreturn]] void unsupported(const Value& schema, std::string_view keyword,
                                std::string_view what = "isn't supported") const;

  /// Members of a schema; null if they are missing. Of another kind: wrong().
  const Value::List* list(const Value& schema, std::string_view keyword) const;
  const Value::Object* object(const Value& schema, std::string_view keyword) const;
  const std::string* string(const Value& schema, std::string_view keyword) const;
  /// A count that isn't negative; one that no output reaches is kHuge.
  std::optional<uint32_t> count(const Value& schema, std::string_view keyword) const;
  static constexpr uint32_t kHuge = 1u << 31;

 private:
  std::string path(const Value& schema) const;

  Value root_;
};

}  // namespace headrace::grammar
