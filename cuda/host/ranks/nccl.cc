#include "cuda/host/ranks/nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "backend/ranks/rank_group.h"
#include "base/check.h"

namespace headrace::cuda {

namespace {

constexpr const char* kFileName = "libnccl.so.2";
constexpr int kOldestVersion = 21800;  // of the kind that ncclGetVersion() gives
constexpr int kFoldersUp = 5;

/// Where its Python package has the library, if that is installed beside the one that holds this
/// code: nvidia/nccl/lib in a folder above.
std::vector<std::string> package_files() {
  std::vector<std::string> out;
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&Nccl::load), &self) == 0 ||
      self.dli_fname == nullptr) {
    return out;
  }
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(self.dli_fname, ignored).parent_path();
  for (int i = 0; i < kFoldersUp && folder.has_relative_path(); ++i) {
    const auto file = folder / "nvidia" / "nccl" / "lib" / kFileName;
    if (std::filesystem::exists(file, ignored)) out.push_back(file.string());
    folder = folder.parent_path();
  }
  return out;
}

template <class Function>
void resolve(void* library, const std::string& file, const char* name, Function& out) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    throw_error(ErrorCode::kUnsupported, "'", file, "' is no NCCL library: it has no ", name, ".");
  }
  out = reinterpret_cast<Function>(symbol);
}

std::string version_text(int version) {
  return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

std::shared_ptr<const Nccl> Nccl::load(const std::string& file, int cuda_major) {
  std::vector<std::string> files = package_files();
  files.emplace_back(kFileName);  // as the system's linker finds it
  if (!file.empty()) files = {file};
  std::string tried;
  for (const std::string& candidate : files) {
    if (void* const library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return std::shared_ptr<const Nccl>(new Nccl(library, candidate));
    }
    const char* const why = ::dlerror();
    tried += str_cat(tried.empty() ? "" : "; ", why == nullptr ? candidate : why);
  }
  throw_error(ErrorCode::kUnsupported,
              "GPUs of one model that can't reach each other's memory need NCCL, which can't be "
              "loaded (",
              tried, "): pip install nvidia-nccl-cu", cuda_major,
              ", or set HEADRACE_NCCL to the path of ", kFileName, ".");
}

Nccl::Nccl(void* library, const std::string& file) {
  resolve(library, file, "ncclGetVersion", version_);
  resolve(library, file, "ncclGetErrorString", error_text_);
  resolve(library, file, "ncclCommInitAll", init_all);
  resolve(library, file, "ncclCommDestroy", destroy);
  resolve(library, file, "ncclCommAbort", abort);
  resolve(library, file, "ncclCommGetAsyncError", async_error);
  resolve(library, file, "ncclAllGather", all_gather);
  int version = 0;
  check(version_(&version), "ncclGetVersion");
  if (version < kOldestVersion) {
    throw_error(ErrorCode::kUnsupported, "'", file, "' is NCCL ", version_text(version),
                ": it must be ", version_text(kOldestVersion), " or later.");
  }
}

void Nccl::check(Result result, const char* call) const {
  if (result == 0) return;
  const char* const text = error_text_(result);
  throw_error(ErrorCode::kDevice, call, " of NCCL failed: ", text == nullptr ? "error" : text, " (",
              result, "); with NCCL_DEBUG=WARN in the environment it says more.");
}

NcclClique::NcclClique(std::shared_ptr<const Nccl> nccl, std::span<const int> devices)
    : nccl_(std::move(nccl)), comms_(devices.size()), aborted_(devices.size()) {
  nccl_->check(nccl_->init_all(comms_.data(), static_cast<int>(devices.size()), devices.data()),
               "ncclCommInitAll");
}

// NCCL frees nothing before the last one, which also waits: behind an abort that must be one, too.
NcclClique::~NcclClique() {
  const bool aborts = std::ranges::find(aborted_, true) != aborted_.end();
  for (size_t rank = 0; rank < comms_.size(); ++rank) {
    if (!aborted_[rank]) {
      static_cast<void>(aborts ? nccl_->abort(comms_[rank]) : nccl_->destroy(comms_[rank]));
    }
  }
}

void NcclClique::all_gather(int32_t rank, std::byte* memory, int64_t bytes, Stream stream) {
  {
    const MutexLock lock(mutex_);
    if (std::ranges::find(aborted_, true) != aborted_.end()) throw OtherRankFailed();
  }
  const Nccl::Comm comm = comms_[static_cast<size_t>(rank)];
  Nccl::Result failure = 0;
  nccl_->check(nccl_->async_error(comm, &failure), "ncclCommGetAsyncError");
  nccl_->check(failure, "an earlier ncclAllGather");
  nccl_->check(nccl_->all_gather(memory + rank * bytes, memory, static_cast<size_t>(bytes),
                                 Nccl::kBytes, comm, stream),
               "ncclAllGather");
}

void NcclClique::abort(int32_t rank) noexcept {
  const auto at = static_cast<size_t>(rank);
  {
    const MutexLock lock(mutex_);
    if (aborted_[at]) return;
    aborted_[at] = true;
  }
  static_cast<void>(nccl_->abort(comms_[at]));
}

}  // namespace headrace::cuda
