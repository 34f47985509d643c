#pragma once

// Models with pictures whose text models run here by themselves.

#include <span>
#include <string_view>
#include <vector>

namespace headrace {

/// What is around a text model: keys and tensors of the rest, which is left out.
struct Wrapper {
  std::string_view model_type;
  std::vector<std::string_view> architectures;
  /// model_type that text_config may have; the first where it has none.
  std::vector<std::string_view> text_types;
  std::vector<const char*> prefixes;  ///< before the decoder's tensors; the usual first
  std::vector<const char*> heads;     ///< names that the head may have
  /// What the names of tensors that are left out begin with.
  std::vector<std::string_view> ignored;
  /// Keys beside text_config that concern the rest.
  std::vector<std::string_view> harmless_keys;
};

/// Null if there is none of that model_type.
const Wrapper* find_wrapper(std::string_view model_type);

std::span<const Wrapper> all_wrappers();

}  // namespace headrace
