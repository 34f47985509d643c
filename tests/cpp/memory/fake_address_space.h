#pragma once

// A RawAllocator over addresses that nothing lies behind: touching one faults.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "memory/raw_allocator.h"

namespace headrace {

class FakeAddressSpace final : public RawAllocator {
 public:
  explicit FakeAddressSpace(size_t capacity) : capacity_(capacity) {}
  ~FakeAddressSpace() override { EXPECT_TRUE(ranges_.empty()) << "regions not given back"; }

  Result<void*> alloc(size_t bytes, size_t alignment) override {
    if (refuse_ || bytes > capacity_ - used_) {
      return Failure{ErrorCode::kOutOfMemory, "address space is full"};
    }
    // Regions lie side by side: only the allocator's own bookkeeping keeps them apart.
    next_ = (next_ + alignment - 1) / alignment * alignment;
    const uintptr_t address = next_;
    next_ += bytes;
    used_ += bytes;
    ranges_[address] = bytes;
    return reinterpret_cast<void*>(address);
  }
  void free(void* data, size_t bytes) noexcept override {
    const auto range = ranges_.find(reinterpret_cast<uintptr_t>(data));
    ASSERT_NE(range, ranges_.end());
    ASSERT_EQ(range->second, bytes);
    used_ -= bytes;
    ranges_.erase(range);
  }
  RawMemoryInfo info() const override { return {capacity_, capacity_ - used_}; }

  void set_refuse(bool refuse) { refuse_ = refuse; }
  size_t used() const { return used_; }
  const std::map<uintptr_t, size_t>& ranges() const { return ranges_; }

 private:
  size_t capacity_;
  size_t used_ = 0;
  uintptr_t next_ = 1;
  bool refuse_ = false;
  std::map<uintptr_t, size_t> ranges_;
};

}  // namespace headrace
