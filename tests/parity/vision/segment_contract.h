#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backend/contract/backend.h"

namespace headrace::parity {

/// Calls of segment_attention() that break its contract, each in one way, are refused. `x`, `out`:
/// [4, 16] act, the backend's.
inline void expect_segment_contract(Backend& backend, const TensorView& x, const TensorView& out) {
  const std::vector<int32_t> ends = {1, 4}, short_ends = {1, 3}, backwards = {3, 3, 4};
  const SegmentAttention good{
      .q = x, .k = x, .v = x, .segment_ends = ends, .heads = 2, .head_dim = 8, .out = out};
  EXPECT_NO_THROW(backend.segment_attention(good));
  const auto expect_refused = [&](const auto& spoil) {
    SegmentAttention bad = good;
    spoil(bad);
    EXPECT_THROW(backend.segment_attention(bad), InternalError);
  };
  expect_refused([&](SegmentAttention& a) { a.segment_ends = short_ends; });
  expect_refused([&](SegmentAttention& a) { a.segment_ends = backwards; });
  expect_refused([&](SegmentAttention& a) { a.segment_ends = {}; });
  expect_refused([&](SegmentAttention& a) { a.first = 1; });
  expect_refused([&](SegmentAttention& a) { a.first = -1; });
  expect_refused([&](SegmentAttention& a) { a.heads = 1; });
  expect_refused([&](SegmentAttention& a) { a.heads = 4, a.head_dim = 4; });
  expect_refused([&](SegmentAttention& a) { a.products = DType::kF16; });
  expect_refused([&](SegmentAttention& a) { a.out = out.first_rows(3); });
  expect_refused([&](SegmentAttention& a) { a.v = x.first_rows(3); });
}

}  // namespace headrace::parity
