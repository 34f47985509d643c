#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/checked_math.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace headrace {
namespace {

TEST(Check, NamesExpressionAndDetail) {
  try {
    HEADRACE_CHECK(1 == 2, "seven is ", 7);
    FAIL() << "did not throw";
  } catch (const InternalError& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(e.what()).find("1 == 2"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("seven is 7"), std::string::npos);
  }
}

TEST(Result, HoldsValueOrFailure) {
  Result<int> good = 4;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 4);
  Result<int> bad = Failure{ErrorCode::kNotFound, "no such thing"};
  EXPECT_FALSE(bad.ok());
  EXPECT_THROW(bad.value(), InternalError);
}

TEST(CheckedMath, RefusesOverflow) {
  const uint64_t big = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(checked_mul(big, 2).has_value());
  EXPECT_FALSE(checked_add(big, 1).has_value());
  EXPECT_EQ(checked_mul(3, 4), 12u);
}

TEST(DType, HalfConversionsRoundTripEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = f16_to_f32(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(wide))));
    } else {
      ASSERT_EQ(f32_to_f16(wide), half) << bits;
    }
    const float brain = bf16_to_f32(half);
    if (std::isnan(brain)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(brain))));
    } else {
      ASSERT_EQ(f32_to_bf16(brain), half) << bits;
    }
  }
}

TEST(DType, RoundsTiesToEven) {
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), f32_to_bf16(1.0f));
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(f16_to_f32(f32_to_f16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(f16_to_f32(f32_to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(f16_to_f32(f32_to_f16(65520.0f)), std::numeric_limits<float>::infinity());
}

TEST(TensorView, SlicesShareMemory) {
  float data[12] = {};
  TensorView whole(data, DType::kF32, {3, 4});
  TensorView slice = whole.columns(1, 2);
  slice.row<float>(2)[1] = 5.0f;
  EXPECT_EQ(data[2 * 4 + 2], 5.0f);
  EXPECT_THROW(whole.columns(3, 2), InternalError);
  EXPECT_EQ(whole.first_rows(2).shape[0], 2);
}

}  // namespace
}  // namespace headrace
