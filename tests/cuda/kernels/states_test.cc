// Kernels of layers with a state: a sequence's bits whatever its slices, saves and neighbours, and
// sums in double.

#include <cmath>
#include <functional>
#include <optional>

#include "cuda/kernels/states/causal_conv.h"
#include "cuda/kernels/states/delta_rule.h"
#include "cuda/kernels/states/ssm_scan.h"
#include "cuda/kernels/states/state_lists.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

constexpr double kUlp = 0x1p-24;
constexpr int32_t kMate = 5, kLength = 36;  ///< rows of another sequence, then of the one compared
constexpr int32_t kRows = kMate + kLength;
constexpr int32_t kSlots = 6;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// Of one rounding to `dtype`, also where float16 has few bits.
double rounding(DType dtype, double value) {
  return 1.01 * roundoff(dtype) * std::abs(value) + (dtype == DType::kF16 ? 0x1p-25 : 0.0);
}

/// Slots of so many numbers each, all NaN.
class Slots {
 public:
  explicit Slots(int64_t numbers)
      : numbers_(numbers),
        stride_((numbers + 63) / 64 * 64),
        memory_(static_cast<size_t>(kSlots * stride_)) {}
  StateArray array() const { return {memory_.data(), stride_}; }
  std::vector<float> read(int32_t slot) const {
    const float* const from = array().slot(slot);
    return {from, from + numbers_};
  }

 private:
  int64_t numbers_, stride_;
  DeviceArray<float> memory_;
};

/// Runs a kernel on a step whose row 0 is the input's row `first`.
using RunRows = std::function<void(int64_t first, const StateStep&, const StateArray&, Matrix out)>;

void run_step(const RunRows& run, int64_t first, std::span<const SeqSlice> seqs, const Slots& slots,
              const DeviceMatrix& out) {
  StateLists lists;
  lists.fill(seqs, seqs.size() + 1);  // and padding
  const DeviceArray<StateSlice> slices(lists.slices);
  const DeviceArray<StateSave> stores(lists.stores);
  const DeviceArray<StatePiece> pieces(lists.pieces);
  Matrix rows = out.matrix();
  rows.data = static_cast<char*>(rows.data) +
              static_cast<size_t>(first * rows.stride) * dtype_size(out.dtype());
  run(first,
      {slices.data(), stores.data(), pieces.data(), static_cast<int32_t>(lists.slices.size()),
       static_cast<int32_t>(lists.pieces.size())},
      slots.array(), rows);
}

std::vector<float> rows_from(const DeviceMatrix& x, int64_t first) {
  const std::vector<float> all = x.values();
  return {all.begin() + first * x.cols(), all.end()};
}

/// The sequence behind its mate in one step, from zeros to slot 0, with what is behind its rows 0
/// and 17 in slots 1 and 2. Then by itself in pieces, in place, and from slot 2 on: the same bits.
void expect_same_bits(const RunRows& run, const Slots& slots, const DeviceMatrix& out) {
  const StateSave saves[] = {{0, 1}, {17, 2}};
  const SeqSlice whole[] = {
      {.first_row = 0, .num_rows = kMate, .state_out = 5},
      {.first_row = kMate, .num_rows = kLength, .state_out = 0, .saves = saves}};
  run_step(run, 0, whole, slots, out);
  const std::vector<float> results = rows_from(out, kMate), state = slots.read(0);
  for (const float x : state) ASSERT_TRUE(std::isfinite(x));

  for (const std::vector<int32_t>& cuts :
       {std::vector<int32_t>{1, 17, 16, 2}, std::vector<int32_t>{1, 35}}) {
    const DeviceMatrix again(out.dtype(), kRows, out.cols());
    int32_t done = 0;
    for (const int32_t rows : cuts) {
      const SeqSlice slice{
          .num_rows = rows, .state_in = done == 0 ? kZeroState : 3, .state_out = 3};
      run_step(run, kMate + done, std::span(&slice, 1), slots, again);
      done += rows;
      if (done == 1) {
        EXPECT_EQ(slots.read(3), slots.read(1));
      }
      if (done == 18) {
        EXPECT_EQ(slots.read(3), slots.read(2));
      }
    }
    EXPECT_EQ(slots.read(3), state);
    EXPECT_EQ(rows_from(again, kMate), results);
  }
  const DeviceMatrix rest(out.dtype(), kRows, out.cols());
  const SeqSlice slice{.num_rows = kLength - 18, .state_in = 2, .state_out = 4};
  run_step(run, kMate + 18, std::span(&slice, 1), slots, rest);
  EXPECT_EQ(slots.read(4), state);
  EXPECT_EQ(rows_from(rest, kMate + 18), rows_from(out, kMate + 18));
}

class States : public KernelTest {
 protected:
  DeviceMatrix matrix(DType dtype, int64_t cols, float low = -1.0f, float high = 1.0f) {
    return {dtype, kRows, cols, random_.uniforms(dtype, kRows * cols, low, high), 8};
  }
  Random random_{71};
};

// --- matrices -------------------------------------------------------------------------------

/// What a recurrence's rows are in double. `error`: relative, of decay and factor.
struct Gate {
  double decay, factor, error;
};
struct Recurrence {
  int32_t heads, key_dim, value_dim;
  bool reads;
  std::function<double(int64_t row, int32_t head, int32_t i)> key, query, value;
  std::function<Gate(int64_t row, int32_t head)> gate;
  std::function<double(int32_t head)> skip;
};

/// A column of a head over the sequence's rows. An error of the state (in the 2-norm) is multiplied
/// by the decay at most, as I - factor k k^T stretches nothing while factor * |k|^2 <= 2; each row
/// adds what it rounds: a sum over a column has at most 8 products in a chain and 5 sums.
void expect_column(const Recurrence& r, int32_t head, int32_t j, const DeviceMatrix& out,
                   const std::vector<float>& state) {
  constexpr double kSum = 14 * kUlp;
  std::vector<double> s(static_cast<size_t>(r.key_dim), 0.0);
  double error = 0.0;
  for (int64_t row = kMate; row < kRows; ++row) {
    const Gate gate = r.gate(row, head);
    double read = 0.0, read_size = 0.0, keys = 0.0, before = 0.0, after = 0.0;
    for (int32_t i = 0; i < r.key_dim; ++i) {
      const double x = s[static_cast<size_t>(i)], k = r.key(row, head, i);
      read += x * k;
      read_size += std::abs(x * k);
      keys += k * k;
      before += x * x;
    }
    const double value = r.value(row, head, j);
    const double u = gate.factor * (r.reads ? value - gate.decay * read : value);
    const double u_error =
        gate.factor * ((3 * kUlp + gate.error) * (std::abs(value) + gate.decay * read_size) +
                       (r.reads ? gate.decay * kSum * read_size : 0.0));
    double sum = 0.0, sum_size = 0.0, queries = 0.0;
    for (int32_t i = 0; i < r.key_dim; ++i) {
      double& x = s[static_cast<size_t>(i)];
      const double q = r.query(row, head, i);
      x = gate.decay * x + r.key(row, head, i) * u;
      sum += x * q;
      sum_size += std::abs(x * q);
      queries += q * q;
      after += x * x;
    }
    error = gate.decay * error + (gate.error + kUlp) * gate.decay * std::sqrt(before) +
            kUlp * std::sqrt(after) + std::sqrt(keys) * u_error;
    const double want = sum + r.skip(head) * value;
    ASSERT_NEAR(out.at(row, head * r.value_dim + j), want,
                std::sqrt(queries) * error + kSum * sum_size + 2 * kUlp * std::abs(want) +
                    rounding(out.dtype(), want))
        << "row " << row << ", head " << head << ", column " << j;
  }
  const float* const got = state.data() + int64_t{head * r.value_dim + j} * r.key_dim;
  for (int32_t i = 0; i < r.key_dim; ++i) ASSERT_NEAR(got[i], s[static_cast<size_t>(i)], error);
}

void expect_recurrence(const Recurrence& r, const RunRows& run, DType dtype) {
  const Slots slots(int64_t{r.heads} * r.value_dim * r.key_dim);
  const DeviceMatrix out(dtype, kRows, int64_t{r.heads} * r.value_dim);
  expect_same_bits(run, slots, out);
  for (int32_t head = 0; head < r.heads; ++head) {
    for (int32_t j = 0; j < r.value_dim; ++j) {
      ASSERT_NO_FATAL_FAILURE(expect_column(r, head, j, out, slots.read(0)));
    }
  }
}

/// Rows from `first` on.
ConstMatrix from_row(const DeviceMatrix& x, int64_t first) {
  ConstMatrix out = x.matrix();
  out.data = static_cast<const char*>(out.data) +
             static_cast<size_t>(first * out.stride) * dtype_size(x.dtype());
  return out;
}

TEST_P(States, DeltaRule) {
  SCOPED_TRACE(random_.trace());
  const std::pair<DType, DeltaSpec> cases[] = {{DType::kF32, {1, 3, 8, 24}},
                                               {DType::kBF16, {2, 2, 40, 8}},
                                               {DType::kF16, {1, 2, 128, 16}},
                                               {DType::kF32, {1, 1, 256, 8}}};
  for (const auto& [dtype, spec] : cases) {
    SCOPED_TRACE(testing::Message() << spec.key_dim << " x " << spec.value_dim);
    const int64_t k_first = spec.key_columns(), v_first = 2 * k_first;
    const float size = 1.7f / std::sqrt(static_cast<float>(spec.key_dim));
    const DeviceMatrix qkv = matrix(dtype, spec.qkv_columns(), -size, size);
    const DeviceMatrix gates = matrix(DType::kF32, 2 * spec.value_heads, 0.0f, 1.0f);
    const int32_t shared = spec.value_heads / spec.key_heads;
    const RunRows run = [&](int64_t first, const StateStep& step, const StateArray& states,
                            Matrix to) {
      delta_rule({dtype, from_row(qkv, first), from_row(gates, first), spec, step, states, to},
                 nullptr);
    };
    expect_recurrence(
        {.heads = spec.value_heads,
         .key_dim = spec.key_dim,
         .value_dim = spec.value_dim,
         .reads = true,
         .key = [&](int64_t row, int32_t h,
                    int32_t i) { return qkv.at(row, k_first + h / shared * spec.key_dim + i); },
         .query = [&](int64_t row, int32_t h,
                      int32_t i) { return qkv.at(row, h / shared * spec.key_dim + i); },
         .value = [&](int64_t row, int32_t h,
                      int32_t j) { return qkv.at(row, v_first + h * spec.value_dim + j); },
         .gate =
             [&](int64_t row, int32_t h) {
               return Gate{gates.at(row, h), gates.at(row, spec.value_heads + h), 0.0};
             },
         .skip = [](int32_t) { return 0.0; }},
        run, dtype);
  }
}

TEST_P(States, SsmScan) {
  SCOPED_TRACE(random_.trace());
  const std::pair<DType, ScanSpec> cases[] = {{DType::kF32, {4, 2, 24, 16, 0.0f, INFINITY}},
                                              {DType::kBF16, {2, 1, 8, 64, 0.3f, 0.9f}},
                                              {DType::kF16, {1, 1, 16, 128, 0.0f, INFINITY}}};
  for (const auto& [dtype, spec] : cases) {
    SCOPED_TRACE(testing::Message() << spec.state_dim << " x " << spec.head_dim);
    const DeviceMatrix xbc = matrix(dtype, spec.xbc_columns());
    const DeviceMatrix dt = matrix(dtype, spec.heads, -4.0f, 4.0f);
    const auto vector = [&](float low, float high) {
      return DeviceArray<float>(random_.uniforms(DType::kF32, spec.heads, low, high));
    };
    const auto a_log = vector(-1.0f, 1.0f), dt_bias = vector(-1.0f, 1.0f), skip = vector(0.5f, 2.f);
    const int32_t shared = spec.heads / spec.groups;
    const int64_t b_first = spec.x_columns();
    const int64_t c_first = b_first + int64_t{spec.groups} * spec.state_dim;
    const RunRows run = [&](int64_t first, const StateStep& step, const StateArray& states,
                            Matrix to) {
      ssm_scan({dtype, from_row(xbc, first), from_row(dt, first), a_log.data(), dt_bias.data(),
                skip.data(), spec, step, states, to},
               nullptr);
    };
    expect_recurrence(
        {.heads = spec.heads,
         .key_dim = spec.state_dim,
         .value_dim = spec.head_dim,
         .reads = false,
         .key = [&](int64_t row, int32_t h,
                    int32_t i) { return xbc.at(row, b_first + h / shared * spec.state_dim + i); },
         .query = [&](int64_t row, int32_t h,
                      int32_t i) { return xbc.at(row, c_first + h / shared * spec.state_dim + i); },
         .value = [&](int64_t row, int32_t h,
                      int32_t j) { return xbc.at(row, h * spec.head_dim + j); },
         // A sum of up to 5, softplus to (5 + 8) roundoffs; an exponent of up to 14, and exp.
         .gate =
             [&](int64_t row, int32_t h) {
               const double sum = double{dt.at(row, h)} + double{dt_bias.data()[h]};
               const double t =
                   std::min(std::max(softplus(sum), double{spec.dt_min}), double{spec.dt_max});
               return Gate{std::exp(-std::exp(double{a_log.data()[h]}) * t), t,
                           (14.0 * 18 + 4) * kUlp};
             },
         .skip = [&](int32_t h) { return skip.data()[h]; }},
        run, dtype);
  }
}

// --- windows --------------------------------------------------------------------------------

TEST_P(States, CausalConv) {
  SCOPED_TRACE(random_.trace());
  struct Case {
    DType dtype;
    ConvSpec spec;
    bool biased;
  };
  for (const auto& [dtype, spec, biased] : {Case{DType::kF32, {5, 2, false}, true},
                                            {DType::kBF16, {300, 4, true}, false},
                                            {DType::kF16, {7, 8, true}, true},
                                            {DType::kBF16, {6, 3, false}, false}}) {
    SCOPED_TRACE(testing::Message() << spec.channels << " channels, " << spec.kernel);
    const int32_t channels = spec.channels, kernel = spec.kernel;
    const DeviceMatrix x = matrix(dtype, channels), out(dtype, kRows, channels);
    const DeviceArray<float> weight(random_.uniforms(DType::kF32, channels * kernel));
    const DeviceArray<float> bias(random_.uniforms(DType::kF32, channels));
    const Slots slots(int64_t{channels} * (kernel - 1));
    expect_same_bits(
        [&](int64_t first, const StateStep& step, const StateArray& states, Matrix to) {
          causal_conv({dtype, from_row(x, first), weight.data(), biased ? bias.data() : nullptr,
                       spec, step, states, to},
                      nullptr);
        },
        slots, out);
    for (int64_t row = kMate; row < kRows; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = biased ? bias.data()[c] : 0.0, size = std::abs(sum);
        for (int64_t j = 0; j < kernel; ++j) {
          const int64_t from = row - kernel + 1 + j;
          const double term =
              from < kMate ? 0.0 : double{weight.data()[j * channels + c]} * double{x.at(from, c)};
          sum += term;
          size += std::abs(term);
        }
        // silu grows by 1.1 times its argument at most; a sum of 9, and 7 roundings behind it.
        const double want = spec.silu ? sum * sigmoid(sum) : sum;
        ASSERT_NEAR(out.at(row, c), want,
                    10 * kUlp * size + 7 * kUlp * std::abs(want) + rounding(dtype, want))
            << row << " " << c;
      }
    }
    const std::vector<float> state = slots.read(0);
    for (int64_t w = 0; w < kernel - 1; ++w) {
      for (int64_t c = 0; c < channels; ++c) {
        ASSERT_EQ(state[static_cast<size_t>(w * channels + c)], x.at(kRows - (kernel - 1) + w, c));
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(States);

}  // namespace
}  // namespace headrace::cuda
