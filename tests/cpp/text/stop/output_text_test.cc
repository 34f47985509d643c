#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cpp/text/decode/decode_cases.h"
#include "headrace/status.h"
#include "headrace/text_output.h"

namespace headrace {
namespace {

using Strings = std::vector<std::string>;

const Strings& tokens() {
  static const Strings all = {"a", "b", "ab", "Ġ", "Ã", "©", "ba", "c"};
  return all;
}

OutputText output(const Strings& stops, const OutputTextOptions& options = {}) {
  static const auto decoder = text::decoder_of(text::kByteLevel, tokens());
  std::optional<StopStrings> set;
  if (!stops.empty()) set.emplace(std::span<const std::string>(stops));
  return OutputText(Detokenizer(decoder, {}), set, options);
}

/// Where the first stop string ends, and the longest that ends there.
std::optional<StopMatch> naive_match(std::string_view text, const Strings& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return StopMatch{best, end - best.size(), end, 0, 0};
  }
  return std::nullopt;
}

std::string push_all(OutputText* text, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += text->push(id);
  return out;
}

std::string decoded(const std::vector<int32_t>& ids, size_t count) {
  OutputText text = output({});
  std::string out =
      push_all(&text, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)});
  return out + text.finish();
}

void check_case(const std::vector<int32_t>& ids, const Strings& stops, bool keeps) {
  OutputText text = output(stops, {.keeps_string = keeps});
  std::string shown;
  size_t pushed = 0;
  while (pushed < ids.size() && !text.match()) {
    shown += text.push(ids[pushed++]);
    if (!text.match()) {
      ASSERT_TRUE(shown.starts_with(decoded(ids, text.released())));
    }
  }
  shown += text.finish();
  const std::string whole = decoded(ids, ids.size());
  const auto expected = naive_match(whole, stops);
  ASSERT_EQ(text.match().has_value(), expected.has_value());
  if (!expected) {
    ASSERT_EQ(shown, whole);
    ASSERT_EQ(text.released(), ids.size());
    return;
  }
  ASSERT_EQ(text.match()->string, expected->string);
  ASSERT_EQ(text.match()->end, expected->end);
  ASSERT_EQ(shown, whole.substr(0, keeps ? expected->end : expected->start));
  size_t kept = keeps ? pushed : 0;
  for (size_t count = 0; count <= pushed && !keeps; ++count) {
    if (shown.starts_with(decoded(ids, count))) kept = count;
  }
  ASSERT_EQ(text.released(), kept);
}

TEST(OutputTextTest, EndsWhereTheTextSays) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<int32_t> ids(random() % 15);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % tokens().size());
    Strings stops(1 + random() % 3);
    for (std::string& stop : stops) {
      const size_t size = 1 + random() % 4;
      while (stop.size() < size) stop += Strings{"a", "b", " ", "é", "�"}[random() % 5];
    }
    check_case(ids, stops, random() % 3 == 0);
  }
}

TEST(OutputTextTest, AFalseStartIsReleasedAtOnce) {
  OutputText text = output({"abx"});
  EXPECT_EQ(text.push(0), "");
  EXPECT_EQ(text.push(1), "");
  EXPECT_EQ(text.released(), 0u);
  EXPECT_EQ(text.push(7), "abc");
  EXPECT_EQ(text.released(), 3u);
}

TEST(OutputTextTest, StopStringsWaitForMinTokens) {
  OutputText text = output({"b"}, {.min_tokens = 3});
  EXPECT_EQ(push_all(&text, {1, 1, 0}), "bba");
  EXPECT_EQ(text.push(1), "");
  ASSERT_TRUE(text.match());
  EXPECT_EQ(text.match()->start, 3u);
  EXPECT_EQ(push_all(&text, {0}), "");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.released(), 3u);
}

TEST(OutputTextTest, PositionsAreInBytesAndCharacters) {
  OutputText text = output({"éa"});
  push_all(&text, {4, 5, 4, 5, 0});
  ASSERT_TRUE(text.match());
  EXPECT_EQ(*text.match(), (StopMatch{"éa", 2, 5, 1, 3}));
}

TEST(OutputTextTest, AnEndingTokenHasNoText) {
  OutputText text = output({});
  EXPECT_EQ(text.push(0), "a");
  EXPECT_EQ(text.push(1, /*has_text=*/false), "");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.released(), 2u);
}

TEST(OutputTextTest, WithoutATokenizerThereIsNoText) {
  OutputText text{Detokenizer()};
  EXPECT_EQ(text.push(5), "");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.released(), 1u);
}

/// Does nothing, and counts the bytes that it has seen.
class Counter final : public text::Normalizer {
 public:
  explicit Counter(size_t* seen) : seen_(*seen) {}
  void apply(text::NormalText* text, text::Fuel*) const override { seen_ += text->size(); }

 private:
  size_t& seen_;
};

TEST(OutputTextTest, CuttingTokensWhoseTextSettlesAtOnceTakesBoundedWork) {
  constexpr size_t kCount = 20'000;
  size_t seen = 0;
  text::Vocabulary vocabulary(false);
  for (const char* token : {"a", "b"}) vocabulary.add(vocabulary.end(), token);
  // All tokens are one text, which is normalized as a whole.
  text::Decoder chain(
      {{.kind = text::StageKind::kNormalize, .normalizer = std::make_shared<const Counter>(&seen)}},
      0);
  const auto decoder = std::make_shared<const text::TokenDecoder>(
      vocabulary, std::span<const text::AddedText>(), std::move(chain));
  OutputText text(Detokenizer(decoder, {}), StopStrings({"b"}));
  for (size_t i = 0; i < kCount; ++i) text.push(i + 2 < kCount ? 0 : 1);
  EXPECT_EQ(text.finish(), std::string(kCount - 2, 'a'));
  EXPECT_LE(text.released(), kCount - 2);
  EXPECT_GT(text.released(), kCount - kCount / 20);
  EXPECT_LT(seen, 100 * kCount + (size_t{1} << 20));  // a text for each token: 10'000 * kCount
}

TEST(OutputTextTest, RefusesADecoderThatIsNotThere) {
  EXPECT_THROW(Detokenizer(nullptr, {}), Error);
}

TEST(OutputTextTest, RefusesStopStringsThatMakeNoSense) {
  EXPECT_THROW(StopStrings({""}), Error);
  EXPECT_THROW(StopStrings({"\xC3"}), Error);
}

}  // namespace
}  // namespace headrace
