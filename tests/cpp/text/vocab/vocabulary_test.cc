#include "text/vocab/vocabulary.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "headrace/status.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(alphabet_byte(alphabet_char(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(alphabet_char(' '), 0x120u);
  EXPECT_EQ(alphabet_char('\n'), 0x10Au);
  EXPECT_EQ(alphabet_char(0xAD), 0x143u);
  EXPECT_EQ(alphabet_byte(' '), -1);
  EXPECT_EQ(alphabet_byte(0x144), -1);
  EXPECT_EQ(alphabet_byte(0x10FFFF), -1);
}

TEST(Vocabulary, FindsWhatWasAdded) {
  Vocabulary vocabulary(false);
  for (int32_t id = 0; id < 5000; ++id) vocabulary.add(id * 2, "token" + std::to_string(id));
  EXPECT_EQ(vocabulary.count(), 5000);
  EXPECT_EQ(vocabulary.end(), 9999);
  EXPECT_EQ(vocabulary.longest(), 9u);
  for (int32_t id = 0; id < 5000; ++id) {
    EXPECT_EQ(vocabulary.find("token" + std::to_string(id)), id * 2);
    EXPECT_EQ(vocabulary.spelling(id * 2), "token" + std::to_string(id));
    EXPECT_EQ(vocabulary.kind(id * 2 + 1), TokenKind::kNone);
  }
  EXPECT_EQ(vocabulary.find("token"), Vocabulary::kNoId);
  EXPECT_EQ(vocabulary.bytes(-1), "");
  EXPECT_EQ(vocabulary.bytes(9999), "");
  EXPECT_EQ(Vocabulary(true).find("a"), Vocabulary::kNoId);
}

TEST(Vocabulary, SpellingsOfAnyLengthAreTold) {
  // Short ones are compared within the table, longer ones with the text.
  Vocabulary vocabulary(false);
  int32_t next = 0;
  for (size_t size = 0; size <= 40; ++size) {
    std::string token(size, 'x');
    vocabulary.append(next++, token);
    if (size == 0) continue;
    token.back() = '\0';  // unlike the zeros behind a short one
    vocabulary.append(next++, token);
    token.front() = 'y';
    if (size > 1) vocabulary.append(next++, token);
  }
  vocabulary.index();
  EXPECT_EQ(vocabulary.count(), next);
  for (int32_t id = 0; id < next; ++id) {
    const std::string token(vocabulary.bytes(id));
    EXPECT_EQ(vocabulary.find(token), id);
    EXPECT_EQ(vocabulary.find(token + "z"), Vocabulary::kNoId);
    EXPECT_TRUE(vocabulary.is(id, token));
    EXPECT_FALSE(vocabulary.is(id, token + "z"));
  }
  EXPECT_FALSE(vocabulary.is(next, ""));
}

TEST(Vocabulary, OneSpellingTwiceIsFoundByIndex) {
  for (const char* token : {"a", "a token longer than the table's keys"}) {
    Vocabulary vocabulary(false);
    vocabulary.append(0, token);
    vocabulary.append(1, "other");
    vocabulary.append(2, token);
    EXPECT_NE(error_of([&] { vocabulary.index(); }).find("is there twice"), std::string::npos);
  }
}

TEST(Vocabulary, ByteLevelTokensAreStoredAsBytes) {
  Vocabulary vocabulary(true);
  vocabulary.add(0, "\u0120a");  // space and a
  vocabulary.add(1, " a");       // not of the alphabet: no word is spelled so
  vocabulary.add_bytes(2, "\xFF");
  const std::string spaces(20, ' ');
  vocabulary.add(3, spaces);
  EXPECT_EQ(vocabulary.find_spelling(spaces), 3);
  EXPECT_EQ(vocabulary.find(spaces), Vocabulary::kNoId);
  EXPECT_EQ(vocabulary.bytes(0), " a");
  EXPECT_EQ(vocabulary.find(" a"), 0);
  EXPECT_EQ(vocabulary.find_spelling(" a"), 1);
  EXPECT_EQ(vocabulary.find_spelling("\u0120a"), 0);
  EXPECT_EQ(vocabulary.spelling(0), "\u0120a");
  EXPECT_EQ(vocabulary.spelling(1), " a");
  EXPECT_TRUE(vocabulary.is_spelled(1));
  EXPECT_EQ(vocabulary.spelling(2), "\u00FF");
  EXPECT_EQ(vocabulary.find_spelling("\u00FF"), 2);
}

TEST(Vocabulary, WrongIdsAndTokensAreErrors) {
  Vocabulary vocabulary(false);
  vocabulary.add(7, "a");
  EXPECT_NE(error_of([&] { vocabulary.add(7, "b"); }).find("given to two tokens"),
            std::string::npos);
  EXPECT_NE(error_of([&] { vocabulary.add(8, "a"); }).find("\"a\" is there twice"),
            std::string::npos);
  EXPECT_NE(error_of([&] { vocabulary.add(-1, "b"); }).find("-1 is not in"), std::string::npos);
  EXPECT_NE(error_of([&] { vocabulary.add(1 << 22, "b"); }).find("is not in"), std::string::npos);
}

}  // namespace
}  // namespace headrace::text
