#include <cstring>
#include <new>

#include "block_runner.h"
#include "device_memory.h"
#include "submit.h"

namespace headrace::cuda {

std::shared_ptr<char> allocate_device(size_t bytes) {
  constexpr std::align_val_t kAlign{256};
  std::shared_ptr<char> memory(static_cast<char*>(::operator new(bytes, kAlign)),
                               [](char* p) { ::operator delete(p, kAlign); });
  std::memset(memory.get(), 0xff, bytes);
  return memory;
}

bool device_has_wgmma() { return true; }

std::shared_ptr<CUstream_st> make_stream() { return nullptr; }

void set_device_schedule(int schedule) {
  emulation::set_schedule(static_cast<emulation::Schedule>(schedule));
}

void submit(Stream, const void*, std::function<void()> work) { work(); }

}  // namespace headrace::cuda
