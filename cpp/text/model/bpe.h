#pragma once

// Byte pair encoding: a word's characters (or bytes) are merged, pair by pair, the lowest rank
// first and of equal ranks the leftmost.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/model/bpe_builder.h"
#include "text/model/model.h"
#include "text/model/pair_table.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

class BpeScratch;

class Bpe final : public Model {
 public:
  /// `merged`: by rank, what a pair becomes. `junctions` may be null: words aren't cut.
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options, PairTable pairs,
      std::vector<int32_t> merged, std::unique_ptr<const Junctions> junctions);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
              std::vector<Token>* tokens) const override;

 private:
  struct Part;

  void make_byte_symbols();
  void make_character_symbols();
  int32_t symbol_of(char32_t value) const noexcept {
    return symbols_[static_cast<size_t>(pages_[value >> 8]) << 8 | (value & 0xFF)];
  }

  void encode_bytes(std::string_view word, bool ranges, BpeScratch* scratch,
                    std::vector<Token>* tokens) const;
  void encode_characters(std::string_view word, bool ranges, BpeScratch* scratch,
                         std::vector<Token>* tokens) const;
  void encode_known(const Part& part, uint32_t hash, BpeScratch* scratch,
                    std::vector<Token>* tokens) const;
  size_t encode_any(const Part& part, BpeScratch* scratch, std::vector<Token>* tokens) const;
  size_t scan_merges(std::string_view text, int32_t* ids, size_t count) const;
  void rank_symbol(uint32_t at, BpeScratch* scratch) const;
  void heap_merges(BpeScratch* scratch) const;
  void emit_known(const int32_t* ids, size_t count, const Part& part,
                  std::vector<Token>* tokens) const;
  size_t emit_symbols(const Part& part, BpeScratch* scratch, std::vector<Token>* tokens) const;
  static void unspell_ranges(std::string_view spelled, std::span<Token> tokens);
  void start_symbols(std::string_view text, BpeScratch* scratch) const;
  bool add_byte_tokens(std::string_view spelled, BpeScratch* scratch) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  PairTable pairs_;
  std::vector<int32_t> merged_;
  std::unique_ptr<const Junctions> junctions_;
  bool affixes_ = false;
  std::array<int32_t, 256> byte_tokens_{};   ///< "<0x41>"
  std::array<int32_t, 256> byte_symbols_{};  ///< byte-level: the tokens of single bytes
  std::vector<uint32_t> first_pairs_;        ///< byte-level: by two bytes, their pair's rank
  std::vector<uint16_t> pages_;              ///< by character >> 8: its page of `symbols_`
  std::vector<int32_t> symbols_;             ///< pages of 256 characters' tokens
};

}  // namespace headrace::text
