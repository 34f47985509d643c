#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "cuda/emulation/submit.h"
#include "cuda/host/support/fake_cuda_api.h"
#include "cuda/host/support/fake_nccl.h"
#include "headrace/status.h"

namespace headrace::cuda {

/// The fake NCCL, as new, for the fake runtime that it is told. One at a time; the runtime, and all
/// that uses the library, go before it. Fails the test for communicators that are left, and for
/// waits in vain, and for records that aren't all ranks'.
class FakeNcclLibrary {
 public:
  static constexpr const char* kFile = HEADRACE_FAKE_NCCL;

  FakeNcclLibrary() {
    void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw_error(ErrorCode::kNotFound, ::dlerror());
    fake_ = reinterpret_cast<FakeNccl* (*)()>(::dlsym(library, kFakeNcclEntry))();
    fake_->submit = [](Stream stream, std::function<void()> work) {
      try {
        submit(stream, nullptr, std::move(work));
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    fake_->version = 22800;
    for (auto* value :
         {&fake_->init_result, &fake_->fail_gather, &fake_->async_result, &fake_->inits,
          &fake_->gathers, &fake_->aborts, &fake_->destroys, &fake_->live_comms}) {
      *value = 0;
    }
    fake_->is_capturing = FakeCudaApi::is_capturing;
    fake_->hung = fake_->mixed = false;
  }
  ~FakeNcclLibrary() {
    EXPECT_EQ(fake_->live_comms, 0) << "communicators leak";
    EXPECT_FALSE(fake_->mixed) << "some ranks record what others don't, or replay other records";
    EXPECT_FALSE(fake_->hung) << "records hold exchanges of communicators that go";
  }
  void serve(FakeCudaApi& api) {
    fake_->run_all = [&api] { api.run_all(); };
  }
  FakeNcclLibrary(const FakeNcclLibrary&) = delete;
  FakeNcclLibrary& operator=(const FakeNcclLibrary&) = delete;

  FakeNccl& operator*() const { return *fake_; }
  FakeNccl* operator->() const { return fake_; }

 private:
  FakeNccl* fake_ = nullptr;
};

}  // namespace headrace::cuda
