#pragma once

// Which tokens of a vocabulary may come next.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/places.h"
#include "grammar/automaton/token_trie.h"

namespace headrace::grammar {

using Mask = std::vector<uint32_t>;  ///< bit t % 32 of [t / 32]: token t

/// Masks of one program and one vocabulary. Remembers much of what it has found out.
///
/// Most of the work is within strings, where most tokens are possible. Which of them stay within an
/// expression doesn't depend on what is around it, so that is found out once for each state of an
/// expression. Only tokens that leave it are followed where it stands.
class Masks {
 public:
  /// ids: of the vocabulary. The trie must outlive this.
  Masks(const TokenTrie& trie, size_t ids) : trie_(trie), words_((ids + 31) / 32) {}

  /// Adds what may come next. `allowed` has a bit for each id.
  void add(PlaceSets* sets, const Places& places, std::span<uint32_t> allowed, Budget* budget);

 private:
  /// What may come within one expression.
  struct Inner {
    Mask mask;
    std::vector<uint32_t> exits;  ///< trie nodes with others below, where the expression may end
    bool knows_exits = false;
  };

  bool is_wide(PlaceSets* sets, Expr rest, Budget* budget);
  uint32_t width(PlaceSets* sets, Expr rest, Budget* budget);
  const Inner& inner(PlaceSets* sets, Expr rest, bool exits, Budget* budget);
  void walk_expression(PlaceSets* sets, Expr rest, Inner* out, Budget* budget);
  void add_within(PlaceSets* sets, const Place& place, std::span<uint32_t> allowed, Budget* budget);
  void add_by_walk(PlaceSets* sets, uint32_t node, SetId set, std::span<uint32_t> allowed,
                   Budget* budget);

  const TokenTrie& trie_;
  size_t words_;
  std::unordered_map<Expr, bool> wide_;
  std::unordered_map<Expr, std::shared_ptr<const Inner>> inners_;
  size_t inner_bytes_ = 0;
  std::vector<Expr> expression_stack_;
  std::vector<SetId> set_stack_;
};

}  // namespace headrace::grammar
