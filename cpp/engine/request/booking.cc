#include "engine/request/booking.h"

#include <utility>

namespace headrace::internal {

Booking::Booking(std::shared_ptr<Workload> load, int64_t prompt_rows, int64_t output_rows)
    : load_(std::move(load)), prompt_rows_(prompt_rows), output_rows_(output_rows) {
  *load_ += prompt_rows_ + output_rows_;
}

Booking::Booking(Booking&& other) noexcept
    : load_(std::move(other.load_)),
      prompt_rows_(std::exchange(other.prompt_rows_, 0)),
      output_rows_(std::exchange(other.output_rows_, 0)) {}

Booking& Booking::operator=(Booking&& other) noexcept {
  std::swap(load_, other.load_);
  std::swap(prompt_rows_, other.prompt_rows_);
  std::swap(output_rows_, other.output_rows_);
  return *this;
}

void Booking::prompt_done() noexcept { give_back(std::exchange(prompt_rows_, 0)); }

void Booking::give_back(int64_t rows) noexcept {
  if (load_ != nullptr && rows > 0) *load_ -= rows;
}

}  // namespace headrace::internal
