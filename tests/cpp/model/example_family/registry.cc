// In place of cpp/model/families/registry.cc, with the examples' lines.

#include "model/families/family.h"

namespace headrace {

const Family& brook_family();
const Family& tarn_family();

std::span<const Family* const> all_families() {
  static const std::vector<const Family*> kFamilies{&brook_family(), &tarn_family(),
                                                    &qwen3_family()};
  return kFamilies;
}

}  // namespace headrace
