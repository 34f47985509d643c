#include "cuda/host/trials/exchange_trial.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

// Few bytes; more than a rank adds up alone; columns, as many more as a rank's number.
constexpr int64_t kFewRows = 3, kFewCols = 40, kManyRows = 65, kManyBytes = 8128;
constexpr int64_t kPartCols = 8, kWords = 33;
constexpr float kEps = 1e-5f;

/// Ends the waits of a rank's kernels when its time is up.
class Watch {
 public:
  Watch(uint32_t* stop, std::chrono::milliseconds patience)
      : thread_([this, stop, patience] {
          MutexLock lock(mutex_);
          late_ = !ended_.wait_for(lock, patience,
                                   [this]() HEADRACE_REQUIRES(mutex_) { return done_; });
          if (late_) std::atomic_ref(*stop).store(1, std::memory_order_release);
        }) {}
  ~Watch() { static_cast<void>(end()); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Whether time was up.
  bool end() {
    {
      const MutexLock lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
    return late_;
  }

 private:
  Mutex mutex_;
  CondVar ended_;
  bool done_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool late_ = false;  // the thread's until it has ended
  std::thread thread_;
};

class ExchangeTrial {
 public:
  ExchangeTrial(CudaContext& context, DeviceRank& rank, const ExchangeOps& ops, DType dtype)
      : rank_(rank),
        links_(rank.links()),
        ops_(ops),
        dtype_(dtype),
        element_(dtype_size(dtype)),
        few_(places_.take(kFewRows * kFewCols * element_)),
        many_(places_.take(kManyRows * kManyBytes)),
        part_(places_.take(kFewRows * static_cast<size_t>(columns(links_.rank)) * element_)),
        words_(places_.take(kWords * sizeof(uint32_t))),
        residual_(places_.take(kFewRows * kFewCols * element_)),
        delta_(places_.take(kFewRows * kFewCols * element_)),
        norm_(places_.take(kFewCols * element_)),
        columns_(places_.take(kFewRows * static_cast<size_t>(all_columns()) * element_)),
        normed_(places_.take(kFewRows * kFewCols * element_)),
        trial_(context, places_.bytes(), places_.bytes()) {}

  std::string run(std::chrono::milliseconds patience) {
    std::string why = rank_.agree("");
    add_up();
    for (const char* how : kTrialRuns) {
      make_inputs();
      Watch watch(links_.stop, patience);
      trial_.run(0, [this] { launch(); });
      trial_.download();
      const bool late = watch.end();
      why = rank_.agree(late ? "they don't end" : compare());
      if (!why.empty()) return why + how;
    }
    return "";
  }

 private:
  static int64_t columns(int32_t rank) { return kPartCols + rank; }
  int64_t all_columns() const {
    int64_t all = 0;
    for (int32_t r = 0; r < links_.count; ++r) all += columns(r);
    return all;
  }
  /// Rows whose sums are normed: each takes a block that waits.
  int64_t norm_rows() const { return std::min<int64_t>(kFewRows, links_.most_blocks); }
  int64_t many_cols() const { return kManyBytes / static_cast<int64_t>(element_); }

  /// Element `i` of a rank's numbers at a place, of sizes so different that sums are rounded.
  float number(int32_t rank, size_t place, int64_t i) const {
    auto bits = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(place) * 40503u +
                static_cast<uint32_t>(rank) * 2246822519u;
    bits = (bits ^ (bits >> 15)) * 2246822507u;
    bits ^= bits >> 13;
    const uint32_t exponent = 119 + (bits >> 23) % 16;  // from 2^-8 on
    return rounded(std::bit_cast<float>((bits & 0x807fffff) | exponent << 23));
  }
  float rounded(float x) const { return dtype_ == DType::kF32 ? x : rounded_to(dtype_, x); }

  void write(size_t place, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = number(links_.rank, place, i);
      std::byte* const to = trial_.staging() + place + static_cast<size_t>(i) * element_;
      if (dtype_ == DType::kF32) {
        std::memcpy(to, &x, sizeof x);
      } else {
        const uint16_t bits = dtype_ == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
        std::memcpy(to, &bits, sizeof bits);
      }
    }
  }

  // Residual and norm are the same on all ranks in a model; here they are of each rank's own.
  void make_inputs() {
    std::memset(trial_.staging(), 0, places_.bytes());
    for (const size_t place : {few_, residual_, delta_}) write(place, kFewRows * kFewCols);
    if (shares_sums()) write(many_, kManyRows * many_cols());
    write(part_, kFewRows * columns(links_.rank));
    write(norm_, kFewCols);
    for (int64_t i = 0; i < kWords; ++i) {
      const auto word = static_cast<uint32_t>(i * 7 + links_.rank * 1000);
      std::memcpy(trial_.staging() + words_ + i * 4, &word, sizeof word);
    }
    trial_.upload();
    trial_.keep(0, 0, places_.bytes());
  }

  /// Whether ranks add up shares of what has many bytes.
  bool shares_sums() const { return links_.count > 2 && links_.carrier == nullptr; }

  Matrix matrix(size_t place, int64_t rows, int64_t cols) const {
    return {trial_.outputs() + place, rows, cols, cols};
  }

  void launch() {
    const Stream stream = trial_.context().stream();
    ops_.all_reduce({links_, dtype_, matrix(few_, kFewRows, kFewCols)}, stream);
    if (shares_sums())
      ops_.all_reduce({links_, dtype_, matrix(many_, kManyRows, many_cols())}, stream);
    GatherColumnsArgs gather{.links = links_,
                             .dtype = dtype_,
                             .part = matrix(part_, kFewRows, columns(links_.rank)),
                             .out = matrix(columns_, kFewRows, all_columns())};
    for (int32_t r = 0; r < kMostRanks; ++r) {
      gather.begins[r + 1] = gather.begins[r] + (r < links_.count ? columns(r) : 0);
    }
    ops_.gather_columns(gather, stream);
    ops_.send_words({links_, reinterpret_cast<uint32_t*>(trial_.outputs() + words_), kWords},
                    stream);
    ops_.reduce_add_norm({links_,
                          {.dtype = dtype_,
                           .x = matrix(residual_, norm_rows(), kFewCols),
                           .delta = matrix(delta_, norm_rows(), kFewCols),
                           .weight = trial_.outputs() + norm_,
                           .eps = kEps,
                           .out = matrix(normed_, norm_rows(), kFewCols)}},
                         stream);
  }

  float found(size_t place, int64_t i) const {
    const std::byte* const from = trial_.staging() + place;
    if (dtype_ != DType::kF32) return half_at(dtype_, from, i);
    float x = 0.0f;
    std::memcpy(&x, from + i * 4, sizeof x);
    return x;
  }
  float sum(size_t place, int64_t i) const {
    float out = number(0, place, i);
    for (int32_t r = 1; r < links_.count; ++r) out += number(r, place, i);
    return rounded(out);
  }
  void add_up() {
    for (int64_t i = 0; i < kFewRows * kFewCols; ++i) few_sums_.push_back(sum(few_, i));
    if (!shares_sums()) return;
    many_sums_.reserve(static_cast<size_t>(kManyRows * many_cols()));
    for (int64_t i = 0; i < kManyRows * many_cols(); ++i) many_sums_.push_back(sum(many_, i));
  }
  bool sums_are_right(size_t place, const std::vector<float>& sums) const {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (found(place, static_cast<int64_t>(i)) != sums[i]) return false;
    }
    return true;
  }

  std::string compare() const {
    if (!sums_are_right(few_, few_sums_)) return "sums are wrong";
    if (!sums_are_right(many_, many_sums_)) return "sums by shares are wrong";
    if (!columns_are_right()) return "columns are wrong";
    for (int64_t i = 0; i < kWords; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, trial_.staging() + words_ + i * 4, sizeof word);
      if (word != static_cast<uint32_t>(i * 7)) return "words are wrong";
    }
    return norms_are_right() ? "" : "norms of sums are wrong";
  }

  bool columns_are_right() const {
    for (int64_t row = 0, at = 0; row < kFewRows; ++row) {
      for (int32_t r = 0; r < links_.count; ++r) {
        for (int64_t i = 0; i < columns(r); ++i, ++at) {
          if (found(columns_, at) != number(r, part_, row * columns(r) + i)) return false;
        }
      }
    }
    return true;
  }

  bool norms_are_right() const {
    const double each =
        dtype_ == DType::kF32 ? 0x1p-18 : (dtype_ == DType::kBF16 ? 0x1p-8 : 0x1p-11) * 1.01;
    for (int64_t row = 0; row < norm_rows(); ++row) {
      double squares = 0.0;
      for (int64_t i = row * kFewCols; i < (row + 1) * kFewCols; ++i) {
        const float kept = rounded(number(links_.rank, residual_, i) + sum(delta_, i));
        if (found(residual_, i) != kept) return false;
        squares += double{kept} * kept;
      }
      const double factor = 1.0 / std::sqrt(squares / kFewCols + kEps);
      for (int64_t i = 0; i < kFewCols; ++i) {
        const int64_t at = row * kFewCols + i;
        const double want = found(residual_, at) * factor * number(links_.rank, norm_, i);
        const double error = std::abs(found(normed_, at) - want);
        if (!(error <= each * std::abs(want) + 0x1p-24)) return false;
      }
    }
    return true;
  }

  DeviceRank& rank_;
  const RankLinks links_;
  const ExchangeOps& ops_;
  const DType dtype_;
  const size_t element_;
  TrialPlaces places_;
  size_t few_, many_, part_, words_, residual_, delta_, norm_, columns_, normed_;
  std::vector<float> few_sums_, many_sums_;  // many: if ranks share them
  Trial trial_;
};

}  // namespace

std::string try_exchanges(CudaContext& context, DeviceRank& rank, const ExchangeOps& ops,
                          DType dtype, std::chrono::milliseconds patience) {
  context.enter();
  try {
    return ExchangeTrial(context, rank, ops, dtype).run(patience);
  } catch (const Error&) {
    context.note_failure();
    throw;
  }
}

ExchangeVerdict prove_exchanges(CudaContext& context, DeviceRank& rank, const ExchangeOps& ops,
                                DType dtype, std::chrono::milliseconds patience) {
  ExchangeVerdict out;
  std::string why = try_exchanges(context, rank, ops, dtype, patience);
  if (why.empty()) return out;
  if (!rank.is_carried()) {
    out.replaced = str_cat("exchanges through each other's memory (", why, ")");
    try {
      rank.leave_peers();
    } catch (const OtherRankFailed&) {
      throw;
    } catch (const Error& error) {
      out.refused = str_cat(out.replaced, ", and ", error.what());
      return out;
    }
    why = try_exchanges(context, rank, ops, dtype, patience);
  }
  if (!why.empty()) out.refused = str_cat("exchanges by NCCL (", why, ")");
  return out;
}

}  // namespace headrace::cuda
