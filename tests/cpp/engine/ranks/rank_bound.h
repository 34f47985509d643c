#pragma once

// How far log-probabilities of several devices may be from those of one: a bound from the roundings
// that differ, and not from how models happen to behave.
//
// Both runs are the exact network with errors at the outputs of its ops. To first order the runs'
// distance is the sum, over all outputs of all ops, of the log-probability's derivative there times
// the difference of both runs' errors there. Derivatives are finite differences here: each output
// is moved by itself, once. Roundings are taken as independent and of mean 0, each of at most u
// (2^-24) times a bound of what is rounded (Higham and Mary, 2019). Then, by Hoeffding, a sum of
// terms that are at most c_i is beyond 6 sqrt(sum of c_i^2) once in 3e7 times. The difference b of
// both runs' errors in an output y:
//
// Linear. A is the sum of |x_k w_k|. One device: a chain of K roundings of at most u A. N of them,
// where the inputs are shared out: chains of K / N, then N - 1 sums of the parts; else K roundings
// again. So b = sqrt(2 K + N) u A is enough for all.
//
// Residual. One rounding in each run: b = 2 u |y|.
//
// RMS norm. Two chains of H + 1 in the mean, of which the root halves the relative error; division,
// root and two products: b = (sqrt(2 H) + 12) u |y|. A row's error is mostly one number: its
// columns are one term.
//
// silu * up. An exponential and five roundings, 8 u |y| in each run: b = 16 u |y|.
//
// Attention with n keys of d numbers. Rope turns each q and k by 3 roundings; a score is a chain of
// d, and a scale. A being the largest sum of |q| |k| over the pairs that rope turns, times the
// scale, a score's error is sqrt(d + 20) u A in each run; the exponential's is 4 u. A weight's
// relative error moves what is within 2 |v| of the result, |v| being the largest of the column;
// then come a chain of n, twice, and a division:
// b = sqrt(2) (2 (sqrt(d + 20) A + 4) + 2 sqrt(n) + 2) u |v|. A head's columns of a row are one
// term.
//
// Experts. Each one's linears and silu as above. The sum of k of them, over N devices, has k + N
// roundings of at most u S in each run, S being the sum of the experts' weights times their A:
// b = sqrt(2 (k + N)) u S. A router is a linear whose logits e = sqrt(2 H + N) u A moves; their
// softmax moves by 2 e and 10 roundings relative to itself, and so does its sum: b = (4 e + 20 u)
// times the weight.
//
// Embeddings, and logits that are put together, are copies. The log-softmax rounds by less than
// 64 u of the largest logit. Terms of second order are some 1e-5 of this; 1 % stands for them.
// Weights are float32 or bfloat16, activations and the cache float32.
//
// Where activations are bfloat16, as CUDA has them beside bfloat16 weights, numbers round behind a
// linear (each of its N parts, then the sum), a residual, a norm, silu * up and attention, in both
// runs; queries, keys and values behind rope, and attention's probabilities. Each by half a unit in
// the last place at most, spread evenly: a sum of such terms has the tails of a normal variable of
// its variance, so a third of their squares is added. Logits and routers are float32. Terms of
// second order are some tenth then: 25 % stands for them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headrace/engine.h"
#include "tensor/dtype.h"

namespace headrace {

inline constexpr int kMostBoundRanks = 4;

/// One that has no products of rounded activations, whatever the machine.
inline constexpr const char* kBoundIsa = "baseline";

/// By how much two runs' log-probabilities behind a prompt of four may differ, of each token.
/// `activations`: kF32 or kBF16.
std::vector<double> rank_bounds(const std::string& folder, DType storage, DType activations);

/// The likeliest tokens behind that prompt, by number, as model "m" says.
std::map<int32_t, float> likeliest_tokens(Engine& engine);

/// Expects what `several` says of these tokens within the bounds.
void expect_within(const std::vector<double>& bounds, const std::map<int32_t, float>& one,
                   const std::map<int32_t, float>& several);

}  // namespace headrace
