#include "backend/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <ios>
#include <string_view>
#include <system_error>

#include "backend/cuda_interface.h"
#include "base/check.h"

namespace headrace {

namespace {

constexpr const char* kFileName = "libheadrace_cuda.so";

const char* last_dl_error() {
  const char* const why = dlerror();
  return why == nullptr ? "unknown reason" : why;
}

bool has_entries(const std::filesystem::path& folder) {
  std::error_code failed;
  const std::filesystem::directory_iterator first(folder, failed);
  return !failed && first != std::filesystem::directory_iterator();
}

CudaPluginEntry open_entry(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw_error(ErrorCode::kUnsupported, "the CUDA plug-in ", path,
                " is not there: install a Headrace that was built with CUDA (build with "
                "-DHEADRACE_CUDA=ON where nvcc is), or use device cpu.");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw_error(ErrorCode::kUnsupported, "the CUDA plug-in can't be loaded: ", last_dl_error());
  }
  void* const entry = dlsym(library, kCudaPluginEntry);
  if (entry == nullptr) {
    throw_error(ErrorCode::kUnsupported, path,
                " is no CUDA plug-in of Headrace: ", last_dl_error());
  }
  return reinterpret_cast<CudaPluginEntry>(entry);
}

}  // namespace

bool has_nvidia_gpu(const std::string& root) {
  const std::filesystem::path base(root);
  std::error_code ignored;
  for (const char* const file : {"dev/nvidia0", "dev/dxg"}) {  // the second: under WSL
    if (std::filesystem::exists(base / file, ignored)) return true;
  }
  // Where the driver makes device files only when they are first used, or numbers them otherwise.
  return has_entries(base / "proc/driver/nvidia/gpus");
}

std::string cuda_plugin_path() {
  Dl_info self;
  // Any address in this library finds its file.
  if (dladdr(reinterpret_cast<const void*>(&cuda_plugin_path), &self) == 0 ||
      self.dli_fname == nullptr) {
    return kFileName;
  }
  return std::filesystem::path(self.dli_fname).replace_filename(kFileName).string();
}

const CudaPlugin& load_cuda_plugin(const std::string& path) {
  const CudaPlugin* const plugin = open_entry(path)();
  const std::string_view version = plugin->version == nullptr ? "" : plugin->version;
  if (plugin->interface != kCudaInterface || version != HEADRACE_VERSION) {
    throw_error(ErrorCode::kUnsupported, "the CUDA plug-in ", path, " is of Headrace ", version,
                " (interface ", std::hex, plugin->interface, "), but this is Headrace ",
                HEADRACE_VERSION, " (interface ", kCudaInterface,
                "): install both from one build.");
  }
  return *plugin;
}

}  // namespace headrace
