#pragma once

// A model without mathematics: the key/value of a position is a hash of everything that decides
// it (adapter, rope length, media, token, and the stored value before it), and the next token is a
// hash of all stored values up to the last position (within the window of the first group). A token
// that is misplaced, repeated or lost, or a block that holds another's values, changes what is
// generated. A model with states has the value before a row from its slot, and not from the cache.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sched/scheduler.h"

namespace headrace::fake {

constexpr int32_t kVocab = 11;

uint64_t mix(uint64_t hash, uint64_t value);
/// Value stored for a position's token, given the value stored before it (first_value() for the
/// first). The rope length counts where SequenceIdentity::rope_len is given, as in models with
/// dynamic RoPE scaling; within an item, its digest and its row count.
uint64_t stored_value(const SeqSpec& spec, uint64_t previous, int32_t position, int32_t token,
                      int32_t rope_len);
uint64_t first_value(const SeqSpec& spec);
/// The next token given the hash of all values. While `num_output` < min_tokens, end tokens are
/// masked, as the sampler does.
int32_t choose(uint64_t all_values, const SeqSpec& spec, int32_t num_output);

struct Finished {
  std::vector<int32_t> output;
  SeqEnd end = SeqEnd::kNone;
};
/// What a request gives when it runs alone; written without the scheduler's code. `window`: that of
/// the first group, whose values a token depends on.
Finished run_alone(const SeqSpec& spec, int32_t window = 0);

using Table = std::vector<int32_t>;

/// The paged cache of a backend. All groups hold the same values. A slot has the value of the last
/// position before it.
class KvStore {
 public:
  explicit KvStore(const SchedulerConfig& config)
      : block_size_(config.block_size),
        windows_(config.windows),
        values_(numbers(config, config.num_blocks)),
        host_values_(numbers(config, config.num_host_blocks)),
        slots_(static_cast<size_t>(config.num_state_slots)),
        host_slots_(static_cast<size_t>(config.num_host_state_slots)) {}
  void write(std::span<const Table> tables, int32_t position, uint64_t value) {
    for (const Table& table : tables) at(table, position) = value;
  }
  /// What a row at `position` finds at the position before it.
  uint64_t before(std::span<const Table> tables, int32_t position) {
    return at(tables.front(), position - 1);
  }
  bool has_states() const { return !slots_.empty(); }
  uint64_t& slot(int32_t index) { return slots_.at(static_cast<size_t>(index)); }
  /// The hash of all that a row at `position` reads.
  uint64_t read(std::span<const Table> tables, int32_t position);
  void copy(std::span<const BlockCopy> copies);
  /// Copies that an abandoned step has not made leave behind anything.
  void spoil(std::span<const BlockCopy> copies);
  /// What an abandoned step may leave behind in a block.
  void spoil(std::span<const Table> tables, int32_t first, int32_t count) {
    for (int32_t p = first; p < first + count; ++p) write(tables, p, ~uint64_t{0});
  }

 private:
  static size_t numbers(const SchedulerConfig& config, int32_t blocks) {
    return static_cast<size_t>(blocks) * static_cast<size_t>(config.block_size);
  }

  std::pair<std::span<uint64_t>, std::span<uint64_t>> ends_of(const BlockCopy& copy);
  std::span<uint64_t> block(std::vector<uint64_t>& values, int32_t index) const {
    const auto size = static_cast<size_t>(block_size_);
    return std::span(values).subspan(static_cast<size_t>(index) * size, size);
  }

  uint64_t& at(const Table& table, int32_t position) {
    const int32_t block = table[static_cast<size_t>(position / block_size_)];
    HEADRACE_CHECK(block >= 0, "position ", position, " was given back");
    return values_[static_cast<size_t>(block) * static_cast<size_t>(block_size_) +
                   static_cast<size_t>(position % block_size_)];
  }
  int32_t first_read(size_t group, int32_t position) const {
    return windows_[group] > 0 ? std::max(0, position - windows_[group] + 1) : 0;
  }

  int32_t block_size_;
  std::vector<int32_t> windows_;  ///< by group; the first is not 1
  std::vector<uint64_t> values_, host_values_, slots_, host_slots_;
};

/// Computes one row of a slice, drafts included, behind those before it: stores its value, and the
/// state behind it where the plan says so.
void compute_row(const PlannedSeq& seq, KvStore& kv, const SeqSpec& spec, int32_t position,
                 int32_t token, int32_t rope_len);

using RopeLen = std::function<int32_t(SeqId, int32_t)>;
/// Runs a step whose copies are made: writes the rows of every sequence, then reads what each
/// needs. Returns, for each planned sequence, the hash of all its values.
std::vector<uint64_t> run_step(const StepPlan& plan, KvStore& kv,
                               const std::function<const SeqSpec&(SeqId)>& spec_of,
                               const RopeLen& rope_len);

}  // namespace headrace::fake
