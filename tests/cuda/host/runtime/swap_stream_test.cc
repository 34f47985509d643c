#include "cuda/host/memory/swap_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "cuda/emulation/submit.h"
#include "cuda/host/support/fake_cuda_api.h"

namespace headrace::cuda {
namespace {

class SwapStreamTest : public testing::Test {
 protected:
  /// Queues a step that uses one block, or a slot.
  void step(const std::string& name, int32_t block, bool is_state = false) {
    swaps_.begin_step();
    swaps_.note_use(block, is_state);
    submit(context_.stream(), nullptr, [this, name] { ran_ += name; });
  }
  /// Queues a copy of a block, or of a slot, and returns its stream.
  Stream copy(const std::string& name, int32_t block, bool is_state = false) {
    const std::array<BlockCopy, 1> copies = {{{.block = block, .is_state = is_state}}};
    const Stream stream = swaps_.begin_copies(copies);
    submit(stream, nullptr, [this, name] { ran_ += name; });
    swaps_.end_copies();
    return stream;
  }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
  SwapStream swaps_{context_};
  std::string ran_;  // what, in order
};

TEST_F(SwapStreamTest, ACopyWaitsForTheLastStepThatUsesItsBlockAndForNoLaterOne) {
  step("a", 1);
  step("b", 2);
  const Stream copies = copy("1", 1);
  api_.synchronize(copies);
  EXPECT_EQ(ran_, "a1");
  copy("2", 2);
  api_.synchronize(copies);
  EXPECT_EQ(ran_, "a1b2");
  copy("3", 3);
  api_.synchronize(copies);
  EXPECT_EQ(ran_, "a1b23");
}

TEST_F(SwapStreamTest, ASlotIsNotTheBlockOfItsNumber) {
  step("a", 1, true);
  step("b", 1);
  api_.synchronize(copy("1", 1, true));
  EXPECT_EQ(ran_, "a1");
  api_.synchronize(copy("2", 1));
  EXPECT_EQ(ran_, "a1b2");
}

TEST_F(SwapStreamTest, TheNextStepWaitsForTheCopies) {
  step("a", 1);
  copy("1", 7);
  step("b", 1);
  api_.synchronize(context_.stream());
  EXPECT_EQ(ran_, "a1b");
}

// Their events have been used again since: those of later steps do.
TEST_F(SwapStreamTest, StepsOfLongAgoAreOver) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) step(name, name[0] - 'a');
  api_.synchronize(copy("0", 0));
  EXPECT_EQ(ran_.substr(0, 1), "a");
  EXPECT_LT(ran_.find('0'), ran_.size());
  api_.synchronize(context_.stream());
  EXPECT_EQ(ran_.size(), 7u);
}

}  // namespace
}  // namespace headrace::cuda
