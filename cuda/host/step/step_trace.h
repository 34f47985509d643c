#pragma once

// The ops of a step and what they were called with, to assert the rule by which steps are recorded:
// each time a record is launched, the model would have called the same ops with the same arguments.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/tensor_view.h"

namespace headrace::cuda {

class StepTrace {
 public:
  /// `op`: a literal. Arguments: numbers, pointers, and tensors, by where they are and their shape.
  template <class... Args>
  void note(const char* op, const Args&... args) {
    ops_.push_back({op, {}});
    (add(args), ...);
  }
  /// Throws InternalError naming the first op of `now` that isn't this one's.
  void expect(const StepTrace& now) const;
  void clear() noexcept { ops_.clear(); }

 private:
  struct Op {
    const char* name;
    std::vector<uint64_t> words;
    std::string text(size_t number) const;
  };

  void add(const TensorView& x) {
    add(x.data);
    for (const int64_t word : {static_cast<int64_t>(x.dtype), x.shape.elements(), x.row_stride}) {
      add(word);
    }
    if (x.shape.rank() == 2) add(x.cols());
  }
  template <class T>
  void add(const T& value) {
    uint64_t word = 0;
    if constexpr (std::is_pointer_v<T>) {
      word = reinterpret_cast<uintptr_t>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      word = std::bit_cast<uint64_t>(static_cast<double>(value));
    } else {
      word = static_cast<uint64_t>(value);
    }
    ops_.back().words.push_back(word);
  }

  std::vector<Op> ops_;
};

}  // namespace headrace::cuda
