#pragma once

// Ids and their spellings.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

enum class TokenKind : uint8_t {
  kNone,  ///< no token has this id
  kNormal,
  kByte,  ///< one byte of a character that has no token ("<0x41>")
  kUnknown,
  kControl,      ///< sentencepiece's: never found in a text, has no text
  kUserDefined,  ///< sentencepiece's: found before all others
  kUnused,
};

/// The ids of a model, without added tokens. Spellings are as the file has them, except that those
/// of a byte-level vocabulary are stored as the bytes that they stand for (`spelling` gives them as
/// in the file).
class Vocabulary {
 public:
  static constexpr int32_t kMaxId = (1 << 22) - 1;
  static constexpr int32_t kNoId = -1;

  explicit Vocabulary(bool byte_level) : byte_level_(byte_level) {}

  void reserve(size_t tokens, size_t bytes);
  /// Throws Error(kCorruptFile): an id that is taken, negative or over kMaxId, or a spelling that
  /// is taken.
  void add(int32_t id, std::string_view spelling, TokenKind kind = TokenKind::kNormal);
  /// The same for a token of a byte-level vocabulary that is known by its bytes.
  void add_bytes(int32_t id, std::string_view bytes, TokenKind kind = TokenKind::kNormal);

  /// Spellings in the byte-level alphabet are stored as bytes.
  bool byte_level() const noexcept { return byte_level_; }
  /// 1 + the largest id.
  int32_t end() const noexcept { return static_cast<int32_t>(entries_.size()); }
  /// The number of ids that have a token.
  int32_t count() const noexcept { return count_; }
  TokenKind kind(int32_t id) const noexcept;
  /// The stored bytes: what a byte-level token stands for, else its spelling. "" for kNone.
  std::string_view bytes(int32_t id) const noexcept;
  /// A token of a byte-level vocabulary whose spelling isn't of the alphabet: no word holds it, and
  /// it is stored as it is spelled.
  bool is_spelled(int32_t id) const noexcept;
  /// As the file spells it.
  std::string spelling(int32_t id) const;

  /// kNoId if no token stands for these bytes (has this spelling, if not byte-level).
  int32_t find(std::string_view bytes) const noexcept { return find(bytes, hash(bytes)); }
  /// By the spelling in the file.
  int32_t find_spelling(std::string_view spelling) const;

  /// Looking up in steps: those of others are done while the memory for the next one comes.
  static uint32_t hash(std::string_view bytes) noexcept;
  void prefetch(uint32_t hash) const noexcept {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_entry(uint32_t hash) const noexcept {
    const int32_t id = slots_.empty() ? kNoId : slots_[hash & (slots_.size() - 1)].id;
    if (id != kNoId) __builtin_prefetch(&entries_[static_cast<size_t>(id)]);
  }
  void prefetch_bytes(uint32_t hash) const noexcept {
    const int32_t id = slots_.empty() ? kNoId : slots_[hash & (slots_.size() - 1)].id;
    if (id != kNoId) __builtin_prefetch(arena_.data() + entries_[static_cast<size_t>(id)].offset);
  }
  int32_t find(std::string_view bytes, uint32_t hash) const noexcept;

  size_t longest() const noexcept { return longest_; }
  size_t memory_bytes() const noexcept;

 private:
  struct Entry {
    uint32_t offset = 0;
    uint32_t size = 0;
    TokenKind kind = TokenKind::kNone;
    bool spelled = false;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = kNoId;
  };

  void check_id(int32_t id) const;
  void insert(int32_t id, size_t offset, TokenKind kind, bool spelled);
  int32_t find_entry(std::string_view stored, uint32_t hash, bool spelled) const noexcept;
  void grow();

  bool byte_level_;
  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  ///< open addressing, at most two thirds full
  int32_t count_ = 0;
  size_t max_probes_ = 0;  ///< no token is farther from its slot
  size_t longest_ = 0;
};

}  // namespace headrace::text
