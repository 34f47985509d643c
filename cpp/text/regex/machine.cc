#include "text/regex/machine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/regex/pattern/classes.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

const FastSet& word_characters() {
  static const FastSet set{outer_word_set()};
  return set;
}

}  // namespace

std::optional<Machine::Match> Machine::find(size_t from) {
  allowed_ = fuel_.left();
  std::optional<Match> match;
  for (size_t start = from; start <= text_.size() && !match;) {
    const bool possible =
        program_.may_be_empty ||
        (start < text_.size() && program_.first_bytes[static_cast<uint8_t>(text_[start])]);
    count(1);
    if (possible && match_at(start)) {
      match = Match{start, at_};
    } else {
      start = next_start(start);
    }
  }
  fuel_.spend(std::exchange(steps_, 0));
  return match;
}

size_t Machine::next_start(size_t start) {
  const size_t next = start + (start < text_.size() ? utf8_size(text_[start]) : 1);
  const Instruction& first = program_.code[0];
  if (first.op != Op::kSetLoop || first.c != kNoLimit || next > text_.size()) {
    return next;
  }
  // What failed behind each part of this run fails behind each part of a shorter one.
  at_ = static_cast<uint32_t>(start);
  while (take(program_.sets[first.a])) {
    count(1);
  }
  return std::max<size_t>(next, at_);
}

bool Machine::match_at(size_t start) {
  stack_.clear();
  at_ = static_cast<uint32_t>(start);
  pc_ = 0;
  for (;;) {
    const Instruction& now = program_.code[pc_];
    if (now.op == Op::kMatch) {
      return true;
    }
    count(1);
    ++pc_;
    if (!step(now) && !backtrack()) {
      return false;
    }
  }
}

bool Machine::step(const Instruction& now) {
  switch (now.op) {
    case Op::kBytes: {
      const std::string_view bytes = std::string_view(program_.bytes).substr(now.a, now.b);
      const bool found = text_.substr(at_).starts_with(bytes);
      at_ += found ? now.b : 0;
      return found;
    }
    case Op::kSet:
      return take(program_.sets[now.a]);
    case Op::kSetLoop:
      return set_loop(now);
    case Op::kSplit:
      push(Kind::kTry, now.b, at_, 0);
      pc_ = now.a;
      return true;
    case Op::kIfByte:
      if (at_ == text_.size() || !program_.byte_sets[now.a][static_cast<uint8_t>(text_[at_])]) {
        pc_ = now.b;
      }
      return true;
    case Op::kJump:
      pc_ = now.a;
      return true;
    case Op::kPlace:
      return at_place(now.place);
    case Op::kCountStart:
    case Op::kCountNext:
    case Op::kCountUp:
    case Op::kEmptyStart:
    case Op::kEmptyEnd:
      return count_step(now);
    default:
      return look_step(now);
  }
}

bool Machine::take(const FastSet& set) {
  if (at_ == text_.size()) {
    return false;
  }
  const auto first = static_cast<uint8_t>(text_[at_]);
  if (first < 0x80) {
    const bool found = set.has_ascii(first);
    at_ += found ? 1 : 0;
    return found;
  }
  size_t next = at_;
  const bool found = set.has(next_char(text_, &next));
  at_ = found ? static_cast<uint32_t>(next) : at_;
  return found;
}

bool Machine::set_loop(const Instruction& now) {
  const FastSet& set = program_.sets[now.a];
  uint32_t done = 0;
  while (done < now.b && take(set)) {
    ++done;
  }
  count(done);
  if (done < now.b) {
    return false;
  }
  const uint32_t least = at_;
  if (now.greed == Greed::kLazy) {
    if (now.c > done) {
      push(Kind::kLazy, pc_ - 1, at_, done);
    }
    return true;
  }
  const uint32_t before = done;
  while (done < now.c && take(set)) {
    ++done;
  }
  count(done - before);
  if (at_ != least && now.greed == Greed::kGreedy) {
    push(Kind::kGreedy, pc_, at_, least);
  }
  return true;
}

bool Machine::count_step(const Instruction& now) {
  const Slot slot = slots_[now.a];
  switch (now.op) {
    case Op::kCountStart:
      set_slot(now.a, {});
      return true;
    case Op::kCountUp:
      set_slot(now.a, {slot.a + 1, 0});
      return true;
    case Op::kCountNext:
      if (slot.a < now.b) {
        return true;
      }
      if (slot.a >= now.c) {
        pc_ = now.d;
      } else if (now.greed == Greed::kLazy) {
        push(Kind::kTry, pc_, at_, 0);
        pc_ = now.d;
      } else {
        push(Kind::kTry, now.d, at_, 0);
      }
      return true;
    case Op::kEmptyStart:
      set_slot(now.a, {at_, 0});
      return true;
    default:  // kEmptyEnd
      pc_ = slot.a == at_ ? now.b : pc_;
      return true;
  }
}

bool Machine::look_step(const Instruction& now) {
  const Slot slot = slots_[now.a];
  switch (now.op) {
    case Op::kMark:
    case Op::kMarkNot:
      // Behind the entry that setting the slot makes.
      set_slot(now.a, {at_, static_cast<uint32_t>(stack_.size() + 1)});
      if (now.op == Op::kMarkNot) {
        push(Kind::kTry, now.b, at_, 0);
      }
      return true;
    case Op::kCommit:
      forget_to(slot.b);
      return true;
    case Op::kAheadEnd:
      forget_to(slot.b);
      at_ = slot.a;
      return true;
    case Op::kNotEnd:
      unwind_to(slot.b);
      return false;
    case Op::kBehindStart:
      set_slot(now.a, {at_, now.b});
      for (uint32_t i = 0; i < now.b; ++i) {
        if (!go_back_one()) {
          return false;
        }
      }
      if (now.b < now.c) {
        push(Kind::kTry, pc_, at_, 0);
      }
      ++pc_;
      return true;
    case Op::kBehindMore:
      if (slot.b >= now.c || !go_back_one()) {
        return false;
      }
      set_slot(now.a, {slot.a, slot.b + 1});
      push(Kind::kTry, pc_ - 1, at_, 0);
      return true;
    default:  // kBehindEnd
      return at_ == slot.a;
  }
}

bool Machine::go_back_one() {
  if (at_ == 0) {
    return false;
  }
  count(1);
  do {
    --at_;
  } while (utf8_continues(text_[at_]));
  return true;
}

bool Machine::at_place(Place place) const {
  const bool at_start = at_ == 0;
  const bool at_end = at_ == text_.size();
  switch (place) {
    case Place::kTextStart:
      return at_start;
    case Place::kTextEnd:
      return at_end;
    case Place::kLastLineEnd:
      return at_end || (text_[at_] == '\n' && at_ + 1 == text_.size());
    case Place::kLineStart:
      return at_start || (!at_end && text_[at_ - 1] == '\n');
    case Place::kLineEnd:
      return at_end || text_[at_] == '\n';
    case Place::kWordEdge:
      return at_word_edge();
    case Place::kNotWordEdge:
      return !at_word_edge();
  }
  return false;
}

bool Machine::at_word_edge() const {
  const FastSet& word = word_characters();
  bool before = false;
  if (at_ > 0) {
    size_t last = at_ - 1;
    while (utf8_continues(text_[last])) {
      --last;
    }
    before = word.has(next_char(text_, &last));
  }
  size_t next = at_;
  const bool after = at_ < text_.size() && word.has(next_char(text_, &next));
  return before != after;
}

void Machine::push(Kind kind, uint32_t index, uint32_t a, uint32_t b) {
  if (stack_.size() >= kMaxStack) {
    throw_error(ErrorCode::kLimitExceeded,
                "a regular expression of the tokenizer leaves too much to try on this text");
  }
  stack_.push_back({kind, index, a, b});
}

void Machine::set_slot(uint32_t index, Slot value) {
  push(Kind::kSlot, index, slots_[index].a, slots_[index].b);
  slots_[index] = value;
}

void Machine::forget_to(uint32_t height) {
  // What slots were must come back if something earlier is tried.
  const auto first = stack_.begin() + height;
  count(stack_.size() - height);
  stack_.erase(std::remove_if(first, stack_.end(),
                              [](const Entry& entry) { return entry.kind != Kind::kSlot; }),
               stack_.end());
}

void Machine::unwind_to(uint32_t height) {
  while (stack_.size() > height) {
    const Entry& entry = stack_.back();
    if (entry.kind == Kind::kSlot) {
      slots_[entry.index] = {entry.a, entry.b};
    }
    stack_.pop_back();
  }
}

bool Machine::backtrack() {
  while (!stack_.empty()) {
    const Entry entry = stack_.back();
    stack_.pop_back();
    count(1);
    if (entry.kind == Kind::kSlot) {
      slots_[entry.index] = {entry.a, entry.b};
    } else if (retry(entry)) {
      return true;
    }
  }
  return false;
}

bool Machine::retry(Entry entry) {
  at_ = entry.a;
  pc_ = entry.index;
  if (entry.kind == Kind::kGreedy) {
    do {
      --at_;
    } while (utf8_continues(text_[at_]));
    if (at_ > entry.b) {
      push(Kind::kGreedy, entry.index, at_, entry.b);
    }
  } else if (entry.kind == Kind::kLazy) {
    const Instruction& loop = program_.code[pc_++];
    if (!take(program_.sets[loop.a])) {
      return false;
    }
    if (entry.b + 1 < loop.c) {
      push(Kind::kLazy, entry.index, at_, entry.b + 1);
    }
  }
  return true;
}

}  // namespace headrace::text
