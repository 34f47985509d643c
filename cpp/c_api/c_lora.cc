#include <string>
#include <utility>
#include <vector>

#include "c_api/c_handles.h"
#include "c_api/c_struct.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

/// What the public struct points into.
struct OwnedInfos : headrace_lora_infos {
  explicit OwnedInfos(std::vector<LoraInfo> from) : headrace_lora_infos{}, data(std::move(from)) {
    views.reserve(data.size());  // pointers into it stay valid
    for (const LoraInfo& each : data) {
      views.push_back({.struct_size = sizeof(headrace_lora_info),
                       .name = each.name.c_str(),
                       .path = each.path.c_str(),
                       .bytes = each.bytes,
                       .rank = each.rank,
                       .num_modules = each.num_modules,
                       .live_requests = each.live_requests,
                       .reserved = 0});
      pointers.push_back(&views.back());
    }
    struct_size = sizeof(headrace_lora_infos);
    count = pointers.size();
    infos = pointers.data();
  }

  const std::vector<LoraInfo> data;
  std::vector<headrace_lora_info> views;
  std::vector<const headrace_lora_info*> pointers;
};

}  // namespace

headrace_code headrace_engine_loras(headrace_engine* engine, const char* name,
                                    headrace_lora_infos** infos) {
  return guarded([&] {
    headrace_lora_infos*& out = deref(infos, "infos");
    out = new OwnedInfos(deref(engine, "engine").engine.loras(or_empty(name)));
  });
}

void headrace_lora_infos_release(headrace_lora_infos* infos) {
  delete static_cast<OwnedInfos*>(infos);
}
