#pragma once

// Ids and their spellings.

#include <cstddef>
#include <cstdint>
#include <span>
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

  /// Throws Error(kCorruptFile): an id that is taken, negative or over kMaxId, or a spelling that
  /// is taken.
  void add(int32_t id, std::string_view spelling, TokenKind kind = TokenKind::kNormal) {
    append(id, spelling, kind);
    index();
  }
  /// The same for a token of a byte-level vocabulary that is known by its bytes.
  void add_bytes(int32_t id, std::string_view bytes, TokenKind kind = TokenKind::kNormal) {
    append_bytes(id, bytes, kind);
    index();
  }
  /// For many tokens: they are found, and those of one spelling are refused, from `index` on.
  void append(int32_t id, std::string_view spelling, TokenKind kind = TokenKind::kNormal);
  void append_bytes(int32_t id, std::string_view bytes, TokenKind kind = TokenKind::kNormal);
  void index();

  /// Spellings in the byte-level alphabet are stored as bytes.
  bool byte_level() const noexcept { return byte_level_; }
  /// 1 + the largest id.
  int32_t end() const noexcept { return static_cast<int32_t>(entries_.size()); }
  /// The number of ids that have a token.
  int32_t count() const noexcept { return count_; }
  TokenKind kind(int32_t id) const noexcept { return static_cast<TokenKind>(entry_of(id).kind); }
  /// The stored bytes: what a byte-level token stands for, else its spelling. "" for kNone.
  std::string_view bytes(int32_t id) const noexcept {
    const Entry entry = entry_of(id);
    return {arena_.data() + entry.offset, entry.size};
  }
  /// A token of a byte-level vocabulary whose spelling isn't of the alphabet: no word holds it, and
  /// it is stored as it is spelled.
  bool is_spelled(int32_t id) const noexcept { return entry_of(id).spelled != 0; }
  /// As the file spells it.
  std::string spelling(int32_t id) const {
    std::string text;
    spell(id, &text);
    return text;
  }
  void spell(int32_t id, std::string* text) const;

  /// What looking up compares: short spellings are a part of it.
  struct Key {
    uint64_t text = 0;
    uint64_t rest = 0;
    uint32_t hash = 0;
  };
  static Key key_of(std::string_view bytes) noexcept;

  /// kNoId if no token stands for these bytes (has this spelling, if not byte-level).
  int32_t find(std::string_view bytes) const noexcept { return find(bytes, key_of(bytes)); }
  int32_t find(std::string_view bytes, const Key& key) const noexcept;
  /// Looking up in two steps: those of others are done while the memory for the next one comes.
  void prefetch(const Key& key) const noexcept {
    if (!slots_.empty()) __builtin_prefetch(&slots_[place(key.hash)]);
  }
  /// By the spelling in the file.
  int32_t find_spelling(std::string_view spelling) const;
  /// Does this token stand for these bytes?
  bool is(int32_t id, std::string_view bytes) const noexcept {
    return this->bytes(id) == bytes && !is_spelled(id) && kind(id) != TokenKind::kNone;
  }

  static uint32_t hash(std::string_view bytes) noexcept;

  size_t longest() const noexcept { return longest_; }
  /// Of all tokens together, as they are stored.
  size_t text_bytes() const noexcept { return arena_.size(); }
  size_t memory_bytes() const noexcept;

 private:
  static constexpr uint32_t kMaxSize = (1u << 24) - 1;
  struct Entry {
    uint32_t offset = 0;
    uint32_t size : 24 = 0;
    uint32_t kind : 7 = 0;  ///< a TokenKind
    uint32_t spelled : 1 = 0;
  };
  /// A key with its token's id, as below. Comparing with a token of up to kShort bytes takes no
  /// other memory.
  struct Slot {
    uint64_t text = 0;
    uint64_t rest = kEmpty;
  };
  // Of `rest`: four bytes of text, or how many there are if it is not short; then the kind of key,
  // then the id.
  static constexpr size_t kShort = 12;
  static constexpr int kKindShift = 32;
  static constexpr uint64_t kLong = uint64_t{15} << kKindShift;  ///< else the size is there
  static constexpr uint64_t kSpelled = uint64_t{16} << kKindShift;
  static constexpr int kIdShift = 42;
  static constexpr uint64_t kKeyMask = (uint64_t{1} << kIdShift) - 1;
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  Entry entry_of(int32_t id) const noexcept {
    return id >= 0 && id < end() ? entries_[static_cast<size_t>(id)] : Entry();
  }
  static Key key_of(std::string_view bytes, bool spelled) noexcept;
  size_t place(uint32_t hash) const noexcept {
    return static_cast<size_t>(uint64_t{hash} * slots_.size() >> 32);
  }
  bool matches(const Slot& slot, const Key& key, std::string_view stored) const noexcept;
  void check_id(int32_t id) const;
  void append_stored(int32_t id, size_t offset, TokenKind kind, bool spelled);
  void insert(int32_t id, const Key& key);
  void insert_all(std::span<const int32_t> ids);

  bool byte_level_;
  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;       ///< open addressing, at most three quarters full
  std::vector<int32_t> waiting_;  ///< for `index`
  int32_t count_ = 0;
  size_t max_probes_ = 0;  ///< no token is farther from its slot
  size_t longest_ = 0;
};

}  // namespace headrace::text
