#include "text/files/sentencepiece/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "text/encode/pipeline.h"

namespace headrace::text {
namespace {

std::string varint(uint64_t value) {
  std::string out;
  for (; value > 0x7F; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }

std::string bytes(uint32_t field, std::string_view value) {
  return varint(field << 3 | 2) + varint(value.size()) + std::string(value);
}

std::string piece(std::string_view text, float score = 0, uint64_t type = 1) {
  std::string scores = varint(2 << 3 | 5);
  const auto bits = std::bit_cast<uint32_t>(score);
  for (int i = 0; i < 4; ++i) scores += static_cast<char>(bits >> 8 * i & 0xFF);
  return bytes(1, bytes(1, text) + scores + number(3, type));
}

constexpr uint64_t kBpe = 2;
std::string trainer(uint64_t type) { return bytes(2, number(3, type)); }
/// No extra spaces removed, as BPE models have it.
std::string keeping_spaces() { return bytes(3, number(4, 0)); }

std::string bpe_model() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("\u2581a", -1) + piece("bc", -2) +
         piece("ab", -3) + piece("\u2581", -4) + piece("a", -5) + piece("b", -6) + piece("c", -7) +
         trainer(kBpe) + keeping_spaces();
}

struct Encoder {
  explicit Encoder(TokenizerTables tables)
      : pipeline(make_parts(std::move(tables)), SequenceEnds{}), scratch(pipeline.make_scratch()) {}
  explicit Encoder(std::string_view file) : Encoder(read_sentencepiece_model(file)) {}

  std::vector<int32_t> ids(std::string_view text, std::vector<Range>* ranges = nullptr) {
    std::vector<int32_t> ids;
    pipeline.encode(text, true, false, scratch.get(), &ids, ranges);
    return ids;
  }
  Pipeline pipeline;
  std::unique_ptr<EncodeScratch> scratch;
};

using Ids = std::vector<int32_t>;

TEST(SentencePieceModel, MergesByScore) {
  Encoder encoder(bpe_model());
  std::vector<Range> ranges;
  EXPECT_EQ(encoder.ids("abc ab", &ranges), (Ids{2, 3, 2, 7}));
  EXPECT_EQ(ranges, (std::vector<Range>{{0, 1}, {1, 3}, {3, 5}, {5, 6}}));
  EXPECT_EQ(encoder.ids("x<s>y"), (Ids{5, 0}));  // control pieces are no text
  EXPECT_EQ(encoder.ids(""), Ids{});
}

TEST(SentencePieceModel, OfEqualScoresTheLeftmostComesFirst) {
  const std::string tail = trainer(kBpe) + bytes(3, number(3, 0) + number(4, 0));
  const std::string start = piece("<unk>", 0, 2) + piece("a", -9) + piece("b", -9) + piece("c", -9);
  Encoder encoder(start + piece("bc", -1) + piece("ab", -1) + tail);
  EXPECT_EQ(encoder.ids("abc"), (Ids{5, 3}));
  EXPECT_EQ(encoder.ids("cabcbc"), (Ids{3, 5, 3, 4}));
  Encoder runs(start + piece("aa", -1) + piece("aaa", -1) + tail);
  EXPECT_EQ(runs.ids("aaaaa"), (Ids{5, 4}));
}

TEST(SentencePieceModel, UnusedPiecesFallApart) {
  const std::string tail = trainer(kBpe) + bytes(3, number(3, 0) + number(4, 0));
  Encoder encoder(piece("<unk>", 0, 2) + piece("a", -9) + piece("b", -9) + piece("ab", -1, 5) +
                  piece("abab", -0.5f) + tail);
  EXPECT_EQ(encoder.ids("ab"), (Ids{1, 2}));
  EXPECT_EQ(encoder.ids("abab"), (Ids{4}));
  EXPECT_EQ(encoder.ids("ababab"), (Ids{4, 1, 2}));
}

TEST(SentencePieceModel, UserDefinedPiecesAreFoundFirst) {
  const std::string user = piece("b c", 0, 4);
  Encoder encoder(bpe_model() + user + bytes(3, number(5, 0)));
  EXPECT_EQ(encoder.ids("ab ca"), (Ids{0, 6, 9, 6}));
}

TEST(SentencePieceModel, TreatsSpacesAsItsFlagsSay) {
  const auto ids = [](uint64_t prefix, uint64_t remove, std::string_view text) {
    return Encoder(bpe_model() + bytes(3, number(3, prefix) + number(4, remove))).ids(text);
  };
  EXPECT_EQ(ids(1, 1, "  a  a  "), (Ids{2, 2}));
  EXPECT_EQ(ids(0, 1, "  a  a  "), (Ids{6, 2}));
  EXPECT_EQ(ids(1, 0, " a a "), (Ids{5, 2, 2, 5}));
  EXPECT_EQ(ids(0, 0, " a a "), (Ids{2, 2, 5}));
  EXPECT_EQ(ids(1, 1, "   "), Ids{});
  EXPECT_EQ(ids(1, 0, ""), Ids{});
}

TEST(SentencePieceModel, StretchesBehindAddedTokens) {
  TokenizerTables tables = read_sentencepiece_model(bpe_model());
  AddedToken token;
  token.content = "<s>";
  token.special = true;
  tables.added.push_back(token);
  TokenizerTables modern = read_sentencepiece_model(bpe_model());
  modern.added = tables.added;
  modern.spaces.first_stretch_only = true;
  modern.bos_id = 1;
  Encoder legacy(std::move(tables));
  EXPECT_EQ(legacy.ids("a<s>a a"), (Ids{2, 1, 2, 2}));
  Encoder first_only(std::move(modern));
  EXPECT_EQ(first_only.ids("a<s>a a"), (Ids{1, 2, 1, 6, 2}));
  EXPECT_EQ(first_only.ids("<s>a"), (Ids{1, 1, 6}));
}

TEST(SentencePieceModel, TheCharsmapsLongestRuleCounts) {
  // A double array of the rules "a" -> "b" and "aa" -> "c c".
  const auto unit = [](uint32_t value) {
    std::string out;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
    return out;
  };
  constexpr uint32_t kLeaf = 1u << 31, kValue = 1u << 8;
  std::vector<uint32_t> units(256);
  units[0] = 1u << 10;
  units[1 ^ 'a'] = ((1 ^ 'a') ^ 2u) << 10 | kValue | 'a';  // to 2
  units[2] = kLeaf | 0;
  units[2 ^ 'a'] = ((2 ^ 'a') ^ 4u) << 10 | kValue | 'a';  // to 4
  units[4] = kLeaf | 2;
  std::string index;
  for (const uint32_t value : units) index += unit(value);
  const std::string map = unit(1024) + index + std::string("b\0c c\0", 6);
  Encoder encoder(bpe_model() + bytes(3, bytes(2, map)));
  EXPECT_EQ(encoder.ids("aaa"), (Ids{5, 8, 5, 8, 7}));

  const auto refused = [&](std::string_view charsmap) {
    EXPECT_THROW(Encoder(bpe_model() + bytes(3, bytes(2, charsmap))).ids("aaa"), Error);
  };
  refused("abc");
  refused(unit(0xFFFFFFF0) + index);
  refused(unit(1024) + index);
  refused(map + "x");                                                  // no end
  refused(unit(1024) + index + std::string("b\0", 2));                 // a rule without replacement
  refused(unit(16) + index.substr(0, 16) + std::string("\xFF\0", 2));  // not UTF-8
}

TEST(SentencePieceModel, BytePiecesSpellWhatIsUnknown) {
  std::string file = piece("<unk>", 0, 2);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto digit = [&](int place) { return kDigits[static_cast<size_t>(byte >> place & 15)]; };
    file += piece(std::string("<0x") + digit(4) + digit(0) + ">", 0, 6);
  }
  const std::string fallback = bytes(2, number(35, 1));
  EXPECT_EQ(Encoder(file + fallback + trainer(kBpe) + bytes(3, number(3, 0))).ids("\u00e9"),
            (Ids{0xC3 + 1, 0xA9 + 1}));
  EXPECT_EQ(Encoder(file + fallback + bytes(3, number(3, 0))).ids("\u00e9"),
            (Ids{0xC3 + 1, 0xA9 + 1}));
  EXPECT_THROW(read_sentencepiece_model(file), Error);                    // without the flag
  EXPECT_THROW(read_sentencepiece_model(bpe_model() + fallback), Error);  // without the pieces
}

TEST(SentencePieceModel, RefusesWhatIsNone) {
  const std::string good = bpe_model();
  EXPECT_NO_THROW(read_sentencepiece_model(good));
  for (const std::string& bad :
       {std::string(), std::string("\xff\xff\xff"), std::string("{}"), trainer(kBpe),
        good.substr(0, good.size() - 1), good + piece("a"), good + piece(""), good + piece("\xC3"),
        good + piece("z", 0, 2), good + piece("z", 0, 9), good + piece("z", 0, 6),
        good + piece("z", std::bit_cast<float>(0x7FC00000u)), good + trainer(3), good + trainer(9),
        good + bytes(5, bytes(2, "x")), good + piece(std::string(kMaxPieceBytes + 1, 'z')),
        good + varint(1 << 3 | 2) + varint(1u << 30), good + varint(1 << 3 | 3),
        good + std::string(11, '\xff')}) {
    EXPECT_THROW(read_sentencepiece_model(bad), Error) << bad.size();
  }
  const std::string unknown_fields = number(900, 7) + bytes(901, "x") + varint(902 << 3 | 1) +
                                     std::string(8, 'x') + varint(903 << 3 | 5) + "xxxx";
  EXPECT_NO_THROW(read_sentencepiece_model(good + unknown_fields));
}

}  // namespace
}  // namespace headrace::text
