#include "text/regex/regex.h"

#include "text/regex/engine.h"
#include "text/regex/matchers.h"

namespace headrace::text {

void Regex::find_all(std::string_view text, uint32_t shift, std::vector<Range>* matches,
                     Fuel* fuel) const {
  add_all(text, shift, matches, [&](size_t from) { return find(text, from, fuel); });
}

std::shared_ptr<const Regex> compile_regex(std::string_view pattern) {
  std::shared_ptr<const Regex> matcher = own_matcher(pattern);
  return matcher != nullptr ? matcher : compile_general(pattern);
}

}  // namespace headrace::text
