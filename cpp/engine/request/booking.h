#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace headrace::internal {

/// Estimated rows that a replica's requests still have to compute.
using Workload = std::atomic<int64_t>;

/// A request's part of a workload, for as long as the request lives.
class Booking {
 public:
  Booking() = default;
  Booking(std::shared_ptr<Workload> load, int64_t prompt_rows, int64_t output_rows);
  Booking(Booking&& other) noexcept;
  Booking& operator=(Booking&& other) noexcept;
  ~Booking() { give_back(prompt_rows_ + output_rows_); }

  /// The prompt is computed: only the output's rows count from now on.
  void prompt_done() noexcept;

 private:
  void give_back(int64_t rows) noexcept;

  std::shared_ptr<Workload> load_;  ///< null: not booked
  int64_t prompt_rows_ = 0, output_rows_ = 0;
};

}  // namespace headrace::internal
