// In place of cpp/model/families/registry.cc, with the example's line.

#include "model/families/family.h"

namespace headrace {

const Family& brook_family();

std::span<const Family* const> all_families() {
  static const std::vector<const Family*> kFamilies{&brook_family(), &qwen3_family()};
  return kFamilies;
}

}  // namespace headrace
