#include <algorithm>

#include "text/regex/program.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

/// How many characters a node matches.
struct Length {
  uint32_t min = 0;
  uint32_t max = 0;
};

uint32_t product(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) {
    return 0;
  }
  const uint64_t value = uint64_t{a} * b;
  return a == kNoLimit || b == kNoLimit || value >= kNoLimit ? kNoLimit
                                                             : static_cast<uint32_t>(value);
}

uint32_t sum(uint32_t a, uint32_t b) { return a >= kNoLimit - b ? kNoLimit : a + b; }

class Compiler {
 public:
  explicit Compiler(const Syntax& syntax)
      : syntax_(syntax), lengths_(syntax.nodes.size()), captures_(syntax.nodes.size()) {}

  Program compile() {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const Node& node = syntax_.nodes[i];
      lengths_[i] = length(node);  // children come before parents
      captures_[i] = node.captures;
      for (const uint32_t child : node.children) {
        captures_[i] += captures_[child];
      }
    }
    for (const CharSet& set : syntax_.sets) {
      program_.sets.emplace_back(set);
      std::bitset<256>& bytes = set_bytes_.emplace_back();
      for (const CodeRange& range : set.ranges()) {
        add_first_bytes(range.first, range.last, &bytes);
      }
    }
    program_.may_be_empty = !add_first(syntax_.root, &program_.first_bytes);
    node(syntax_.root);
    emit(Op::kMatch);
    return std::move(program_);
  }

 private:
  Length length(const Node& node) const {
    Length all;
    switch (node.kind) {
      case NodeKind::kChar:
      case NodeKind::kSet:
        return {1, 1};
      case NodeKind::kSequence:
        for (const uint32_t child : node.children) {
          all = {sum(all.min, lengths_[child].min), sum(all.max, lengths_[child].max)};
        }
        return all;
      case NodeKind::kChoice:
        all.min = kNoLimit;
        for (const uint32_t child : node.children) {
          all = {std::min(all.min, lengths_[child].min), std::max(all.max, lengths_[child].max)};
        }
        return all;
      case NodeKind::kRepeat:
        return {product(lengths_[node.children[0]].min, node.min),
                product(lengths_[node.children[0]].max, node.max)};
      case NodeKind::kAtomic:
        return lengths_[node.children[0]];
      default:
        return all;
    }
  }

  /// Adds the bytes with which a node may begin. False: it may match nothing.
  bool add_first(uint32_t index, std::bitset<256>* bytes) const {
    const Node& node = syntax_.nodes[index];
    switch (node.kind) {
      case NodeKind::kChar:
        add_first_bytes(node.value, node.value, bytes);
        return true;
      case NodeKind::kSet:
        *bytes |= set_bytes_[node.set];
        return true;
      case NodeKind::kSequence:
        return std::any_of(node.children.begin(), node.children.end(),
                           [&](uint32_t child) { return add_first(child, bytes); });
      case NodeKind::kChoice: {
        bool all = true;
        for (const uint32_t child : node.children) {
          all = add_first(child, bytes) && all;
        }
        return all;
      }
      case NodeKind::kRepeat:
        return node.max > 0 && add_first(node.children[0], bytes) && node.min > 0;
      case NodeKind::kAtomic:
        return add_first(node.children[0], bytes);
      default:
        return false;
    }
  }

  static void add_first_bytes(char32_t first, char32_t last, std::bitset<256>* bytes) {
    const auto lead = [](char32_t value) -> uint32_t {
      return value < 0x80      ? value
             : value < 0x800   ? 0xC0 | value >> 6
             : value < 0x10000 ? 0xE0 | value >> 12
                               : 0xF0 | value >> 18;
    };
    for (uint32_t byte = lead(first); byte <= lead(last); ++byte) {
      bytes->set(byte);
    }
  }

  uint32_t here() const { return static_cast<uint32_t>(program_.code.size()); }
  uint32_t emit(Op op, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0) {
    Instruction instruction;
    instruction.op = op;
    instruction.a = a;
    instruction.b = b;
    instruction.c = c;
    program_.code.push_back(instruction);
    return here() - 1;
  }
  Instruction& at(uint32_t index) { return program_.code[index]; }
  uint32_t slot() { return program_.slots++; }

  void node(uint32_t index) {
    const Node& node = syntax_.nodes[index];
    switch (node.kind) {
      case NodeKind::kChar:
        return literal(node);
      case NodeKind::kSet:
        emit(Op::kSet, node.set);
        return;
      case NodeKind::kSequence:
        for (const uint32_t child : node.children) {
          this->node(child);
        }
        return;
      case NodeKind::kChoice:
        return choice(node);
      case NodeKind::kRepeat:
        return repeat(node);
      case NodeKind::kAtomic: {
        const uint32_t mark = slot();
        emit(Op::kMark, mark);
        this->node(node.children[0]);
        emit(Op::kCommit, mark);
        return;
      }
      case NodeKind::kAhead:
      case NodeKind::kBehind:
        return look(node);
      case NodeKind::kAssert:
        at(emit(Op::kPlace)).place = node.place;
        return;
    }
  }

  void literal(const Node& node) {
    std::string bytes;
    append_utf8(node.value, &bytes);
    // Neighbouring characters are compared at once, unless something jumps between them.
    const bool joins = here() > fence_ && at(here() - 1).op == Op::kBytes;
    if (joins) {
      at(here() - 1).b += static_cast<uint32_t>(bytes.size());
    } else {
      emit(Op::kBytes, static_cast<uint32_t>(program_.bytes.size()),
           static_cast<uint32_t>(bytes.size()));
    }
    program_.bytes += bytes;
  }
  /// What comes next may be jumped to.
  uint32_t fence() {
    fence_ = here();
    return fence_;
  }

  void choice(const Node& node) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i + 1 < node.children.size(); ++i) {
      const uint32_t guard = byte_guard(node.children[i]);
      const uint32_t split = emit(Op::kSplit);
      at(split).a = fence();
      this->node(node.children[i]);
      ends.push_back(emit(Op::kJump));
      at(split).b = fence();
      if (guard != kNoLimit) {
        at(guard).b = here();
      }
    }
    this->node(node.children.back());
    for (const uint32_t end : ends) {
      at(end).a = fence();
    }
  }
  /// Spares most texts an alternative that can't match: the instruction, or kNoLimit.
  uint32_t byte_guard(uint32_t child) {
    std::bitset<256> bytes;
    if (!add_first(child, &bytes) || bytes.count() > 128) {
      return kNoLimit;
    }
    program_.byte_sets.push_back(bytes);
    return emit(Op::kIfByte, static_cast<uint32_t>(program_.byte_sets.size() - 1));
  }

  void repeat(const Node& node) {
    const Node& body = syntax_.nodes[node.children[0]];
    if (node.max == 0) {
      return;
    }
    if (node.min == 1 && node.max == 1) {
      return this->node(node.children[0]);
    }
    if (body.kind == NodeKind::kSet || body.kind == NodeKind::kChar) {
      return set_loop(node, body);
    }
    if (node.greed == Greed::kPossessive) {
      const uint32_t mark = slot();
      emit(Op::kMark, mark);
      loop(node, Greed::kGreedy);
      emit(Op::kCommit, mark);
      return;
    }
    loop(node, node.greed);
  }

  void set_loop(const Node& node, const Node& body) {
    uint32_t set = body.set;
    if (body.kind == NodeKind::kChar) {
      CharSet one;
      one.add(body.value, body.value);
      set = static_cast<uint32_t>(program_.sets.size());
      program_.sets.emplace_back(one);
    }
    at(emit(Op::kSetLoop, set, node.min, node.max)).greed = node.greed;
  }

  void split(uint32_t index, Greed greed, uint32_t again, uint32_t out) {
    at(index).a = greed == Greed::kLazy ? out : again;
    at(index).b = greed == Greed::kLazy ? again : out;
  }

  void loop(const Node& node, Greed greed) {
    const uint32_t child = node.children[0];
    const bool endless = node.max == kNoLimit;
    if (node.min == 0 && node.max == 1) {
      const uint32_t start = emit(Op::kSplit);
      const uint32_t inside = fence();
      this->node(child);
      split(start, greed, inside, fence());
    } else if (endless && node.min <= 1) {
      const uint32_t enter = node.min == 0 ? emit(Op::kSplit) : 0;
      const uint32_t inside = fence();
      const uint32_t empty_end = checked_body(child, 0);
      const uint32_t again = emit(Op::kSplit);
      const uint32_t out = fence();
      split(again, greed, inside, out);
      if (node.min == 0) {
        split(enter, greed, inside, out);
      }
      end_check(empty_end, out);
    } else {
      const uint32_t counter = slot();
      emit(Op::kCountStart, counter);
      const uint32_t next = emit(Op::kCountNext, counter, node.min, node.max);
      at(next).greed = greed;
      emit(Op::kCountUp, counter);
      fence();
      const uint32_t copies = endless || greed == Greed::kLazy ? 0 : node.max;
      const uint32_t empty_end = checked_body(child, copies);
      emit(Op::kJump, next);
      const uint32_t out = fence();
      at(next).d = out;
      end_check(empty_end, out);
    }
  }

  /// The body of a loop. If it may match nothing, and the loop ends then: the instruction for that.
  /// Else 0. copies: Oniguruma writes a short body as many times instead of counting, and then
  /// doesn't look whether it matched nothing; 0: never.
  uint32_t checked_body(uint32_t child, uint32_t copies) {
    constexpr uint64_t kMostInstructions = 10;
    if (lengths_[child].min > 0) {
      node(child);
      return 0;
    }
    const uint32_t place = slot();
    emit(Op::kEmptyStart, place);
    const uint32_t start = fence();
    node(child);
    const auto guards = std::count_if(program_.code.begin() + start, program_.code.end(),
                                      [](const Instruction& now) { return now.op == Op::kIfByte; });
    const uint64_t size =
        here() - start - static_cast<uint32_t>(guards) + uint64_t{2} * captures_[child];
    const bool copied = copies > 0 && (size + 1) * copies <= kMostInstructions;
    return copied ? 0 : emit(Op::kEmptyEnd, place);
  }
  void end_check(uint32_t empty_end, uint32_t out) {
    if (empty_end != 0) {
      at(empty_end).b = out;
    }
  }

  void look(const Node& node) {
    const uint32_t mark = slot();
    const uint32_t start = emit(node.negative ? Op::kMarkNot : Op::kMark, mark);
    if (node.kind == NodeKind::kBehind) {
      const Length body = lengths_[node.children[0]];
      const uint32_t place = slot();
      emit(Op::kBehindStart, place, body.min, body.max);
      emit(Op::kBehindMore, place, 0, body.max);
      fence();
      this->node(node.children[0]);
      emit(Op::kBehindEnd, place);
    } else {
      this->node(node.children[0]);
    }
    emit(node.negative ? Op::kNotEnd : Op::kAheadEnd, mark);
    at(start).b = fence();
  }

  const Syntax& syntax_;
  std::vector<Length> lengths_;
  std::vector<uint32_t> captures_;           ///< by node: capturing groups within it
  std::vector<std::bitset<256>> set_bytes_;  ///< by set: with which its characters begin
  Program program_;
  uint32_t fence_ = 0;
};

}  // namespace

Program compile_program(const Syntax& syntax) { return Compiler(syntax).compile(); }

}  // namespace headrace::text
