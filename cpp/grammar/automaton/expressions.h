#pragma once

// Regular expressions over bytes, and their derivatives: what of an expression is left behind a
// byte. The derivatives are the states of an automaton that is made as it is walked. Unlike a
// nondeterministic automaton it knows intersection and complement, and counts without copies.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/budget.h"
#include "grammar/automaton/byte_set.h"

namespace headrace::grammar {

/// An expression: an index into its store. Equal numbers mean equal expressions.
using Expr = uint32_t;

inline constexpr Expr kNothing = 0;  ///< matches nothing
inline constexpr Expr kEmpty = 1;    ///< matches the empty text
inline constexpr uint32_t kUnbounded = UINT32_MAX;

/// What bounds a store.
struct StoreLimits {
  size_t max_byte_sets = 2000;
  size_t max_states = 50'000;          ///< expressions whose derivatives are known
  size_t max_expressions = 1'000'000;  ///< of about 40 bytes
  size_t max_list_items = 4'000'000;   ///< of choices and intersections, 4 bytes each
};

/// Expressions, each once. A value: copies are independent, and know the same expressions by the
/// same numbers.
class Expressions {
 public:
  explicit Expressions(const StoreLimits& limits = {});

  Expr bytes(const ByteSet& set);
  Expr byte(uint8_t value) { return bytes(ByteSet::of(value)); }
  Expr literal(std::string_view text);
  /// Any of the texts.
  Expr literals(const std::vector<std::string_view>& texts);
  /// Any of the texts, each given by its parts: a tree, so that a step costs what differs, not all
  /// of them.
  Expr any_of(std::vector<std::vector<Expr>> texts);
  Expr concat(Expr first, Expr second);
  Expr concat(std::initializer_list<Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr both(std::vector<Expr> parts);
  /// Everything else, also what isn't UTF-8.
  Expr complement(Expr part);
  /// max: kUnbounded for no limit.
  Expr repeat(Expr part, uint32_t min, uint32_t max);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr star(Expr part) { return repeat(part, 0, kUnbounded); }
  /// The end of one text of several, by its number. Nothing may stand behind it. What has come to
  /// it isn't nullable: mark_of() tells which it was.
  Expr mark(uint32_t number) { return intern({Kind::kMark, number, 0, 0, {}}); }
  bool is_mark(Expr e) const { return nodes_[e].kind == Kind::kMark; }
  /// REQUIRES: is_mark(e).
  uint32_t mark_of(Expr e) const { return nodes_[e].a; }
  /// Decimal digits, of which `decimals` at most may stand behind a point, whose value is a
  /// multiple of modulus / 10^decimals. REQUIRES: modulus > 0.
  Expr multiple_of(uint32_t modulus, uint32_t decimals);

  bool nullable(Expr e) const { return nodes_[e].nullable; }
  /// Does anything match?
  bool alive(Expr e, Budget* budget);
  /// What is left behind a byte; kNothing where no match begins so.
  Expr step(Expr e, uint8_t value, Budget* budget) {
    return step_class(e, class_of(value), budget);
  }
  bool matches(Expr e, std::string_view text, Budget* budget);

  /// Bytes of one class have equal derivatives, whatever the expression. More expressions may make
  /// more classes; derivatives make none.
  size_t classes();
  uint8_t class_of(uint8_t value) {
    if (classes_are_old_) [[unlikely]] {
      find_classes();
    }
    return class_of_[value];
  }
  Expr step_class(Expr e, uint8_t byte_class, Budget* budget) {
    const uint32_t row = nodes_[e].row;
    if (row != kNoRow) {
      const uint32_t known = rows_[row + byte_class];
      if (known != kUnknown && (known & kRawBit) == 0) return known;
    }
    return find_step(e, byte_class, budget);
  }

  /// Takes steps for all expressions that were made, or found again, since the last call. Steps
  /// along derivatives do so themselves.
  void pay(Budget* budget) {
    constexpr uint64_t kWorkPerStep = 8;
    const uint64_t steps = work_ / kWorkPerStep;
    work_ %= kWorkPerStep;
    budget->step(steps);
  }

  /// An expression that begins with the same texts of at most `longest` bytes, and ends them at the
  /// same places: counts beyond that are rounded, so that many are one.
  Expr rounded(Expr e, uint32_t longest);

  size_t size() const { return nodes_.size(); }

 private:
  enum class Kind : uint8_t {
    kNone,
    kUnit,
    kMark,        // a: its number
    kBytes,       // a: the set
    kConcat,      // a, b; a is none itself
    kChoice,      // a: where its list begins, b: how long it is
    kBoth,        // the same
    kComplement,  // a
    kRepeat,      // a; b to c times
    kMultiple,    // a: modulus, b: remainder, c: decimals left, and kBehindPoint
  };
  struct Node {
    Kind kind = Kind::kNone;
    bool nullable = false;
    bool positive = false;  // known to match something
    uint8_t life = 0;       // found out: 0 nothing, 1 alive, 2 dead
    uint32_t shortest = 0;  // no match has fewer bytes
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t c = 0;
    uint32_t row = kNoRow;
  };
  struct Key {
    Kind kind;
    uint32_t a;
    uint32_t b;
    uint32_t c;
    std::span<const Expr> list;
  };
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr uint32_t kRawBit = 1u << 31;  // in a row: it isn't known whether this is alive
  static constexpr uint32_t kBehindPoint = 1u << 31;

  bool is(const Node& node, const Key& key) const;
  static uint32_t hash(const Key& key);
  void grow_index();
  /// Finds it or adds it.
  Expr intern(const Key& key);
  void describe(Node* node) const;
  uint32_t shortest_of(const Node& node) const;
  std::span<const Expr> list(const Node& node) const {
    return std::span(lists_).subspan(node.a, node.b);
  }
  std::vector<Expr> copied_list(const Node& node) const {
    const std::span<const Expr> found = list(node);
    return {found.begin(), found.end()};
  }
  Expr tree_of(std::span<const std::vector<Expr>> texts, size_t depth);
  void merge_repeats(std::vector<Expr>* parts);
  Expr multiple(uint32_t modulus, uint32_t remainder, uint32_t decimals);

  void find_classes();
  bool splits_classes(const ByteSet& set) const;
  Expr find_step(Expr e, uint8_t byte_class, Budget* budget);
  /// The derivative, also one that is dead.
  Expr derive(Expr e, uint8_t byte_class, Budget* budget);
  Expr derive_now(Expr e, uint8_t byte_class, Budget* budget);
  Expr derive_concat(Expr e, uint8_t byte_class, Budget* budget);
  Expr derive_list(const Node& node, uint8_t byte_class, Budget* budget);
  Expr derive_repeat(const Node& node, uint8_t byte_class, Budget* budget);
  Expr derive_multiple(const Node& node, uint8_t byte_class);
  uint32_t* row(Expr e);
  bool search(Expr e, Budget* budget);

  StoreLimits limits_;
  std::vector<Node> nodes_;
  std::vector<Expr> lists_;
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, uint32_t, ByteSet::Hash> set_numbers_;
  uint64_t work_ = 0;            // that isn't paid for
  std::vector<uint32_t> index_;  // nodes by hash, open addressing; 0: free
  std::vector<uint32_t> rows_;
  size_t row_count_ = 0;
  bool classes_are_old_ = true;
  size_t class_count_ = 0;
  std::array<uint8_t, 256> class_of_{};
  std::array<uint8_t, 256> byte_of_{};  // one of each class
};

}  // namespace headrace::grammar
