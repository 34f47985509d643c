#include "text/split/splitters.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr uint16_t kWord = kRustWord;
constexpr uint16_t kKinds = kRustWord | kSpace;

std::string_view view_of(const Words& words, Range word) {
  return words.text.view().substr(word.begin, word.end - word.begin);
}

/// Calls `cut(word)`, which appends to words->next_ranges, for each word, and takes those.
template <class Cut>
void cut_each(Words* words, const Cut& cut) {
  words->next_ranges.clear();
  for (const Range& word : words->ranges) {
    cut(word);
  }
  words->ranges.swap(words->next_ranges);
}

/// char_flags, read once for each ASCII character.
uint16_t flags_at(std::string_view text, size_t* at) {
  static const std::array<uint16_t, 128> ascii = [] {
    std::array<uint16_t, 128> flags{};
    for (char32_t value = 0; value < 128; ++value) {
      flags[value] = char_flags(value);
    }
    return flags;
  }();
  const auto byte = static_cast<uint8_t>(text[*at]);
  if (byte < 0x80) {
    ++*at;
    return ascii[byte];
  }
  return char_flags(next_char(text, at));
}

/// Writes a text anew, word by word, and keeps what is between words.
class Rewriter {
 public:
  explicit Rewriter(Words* words) : words_(words), writer_(words->text) {
    words_->next_ranges.clear();
  }
  /// Before a word's first byte.
  void begin(Range word) {
    keep(done_, word.begin);
    start_ = size_;
  }
  void keep(size_t begin, size_t end) {
    if (begin != end) {
      writer_.keep(begin, end);
    }
    size_ += end - begin;
    done_ = end;
  }
  void put(std::string_view bytes, size_t begin, size_t end) {
    writer_.put(bytes, begin, end);
    size_ += bytes.size();
    done_ = end;
  }
  /// Behind a word's last byte.
  void end() {
    words_->next_ranges.push_back({static_cast<uint32_t>(start_), static_cast<uint32_t>(size_)});
  }
  void finish() {
    keep(done_, words_->text.size());
    words_->text.replace_by(std::move(writer_));
    words_->ranges.swap(words_->next_ranges);
  }

 private:
  Words* words_;
  NormalText::Writer writer_;
  size_t done_ = 0;   ///< of the old text
  size_t size_ = 0;   ///< of the new one
  size_t start_ = 0;  ///< of the current word, in the new one
};

}  // namespace

void SequenceSplitter::apply(Words* words, Fuel* fuel) const {
  for (const auto& step : steps_) {
    step->apply(words, fuel);
  }
}

void RegexSplitter::apply(Words* words, Fuel* fuel) const {
  cut_each(words, [&](Range word) {
    words->matches.clear();
    regex_->find_all(view_of(*words, word), word.begin, &words->matches, fuel);
    cut_word(word, words->matches, behavior_, invert_, &words->next_ranges);
  });
}

void FlagSplitter::apply(Words* words, Fuel* fuel) const {
  fuel->spend(words->text.size());
  cut_each(words, [&](Range word) {
    words->matches.clear();
    const std::string_view text = words->text.view();
    for (size_t at = word.begin; at < word.end;) {
      const size_t begin = at;
      if ((flags_at(text, &at) & flags_) != 0) {
        words->matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
      }
    }
    cut_word(word, words->matches, behavior_, false, &words->next_ranges);
  });
}

void WordRunSplitter::apply(Words* words, Fuel* fuel) const {
  fuel->spend(words->text.size());
  cut_each(words, [&](Range word) {
    const std::string_view text = words->text.view();
    uint32_t begin = word.begin;
    uint16_t kind = kSpace;  // of the run that began at `begin`
    const auto end_run = [&](size_t end) {
      if (kind != kSpace && begin != end) {
        words->next_ranges.push_back({begin, static_cast<uint32_t>(end)});
      }
      begin = static_cast<uint32_t>(end);
    };
    for (size_t at = word.begin; at < word.end;) {
      const size_t start = at;
      const uint16_t flags = flags_at(text, &at);
      const uint16_t own = (flags & kWord) != 0 ? kWord : flags & kKinds;
      if (own != kind) {
        end_run(start);
        kind = own;
      }
    }
    end_run(word.end);
  });
}

void LengthSplitter::apply(Words* words, Fuel* fuel) const {
  fuel->spend(words->text.size());
  cut_each(words, [&](Range word) {
    const std::string_view text = words->text.view();
    for (size_t at = word.begin; at < word.end;) {
      const size_t begin = at;
      for (size_t count = 0; count < length_ && at < word.end; ++count) {
        at += utf8_size(text[at]);
      }
      words->next_ranges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
    }
  });
}

void PrefixSpacer::apply(Words* words, Fuel* fuel) const {
  fuel->spend(words->text.size());
  const std::string_view text = words->text.view();
  Rewriter rewriter(words);
  for (const Range& word : words->ranges) {
    rewriter.begin(word);
    const size_t first_end = word.begin + utf8_size(text[word.begin]);
    if (text[word.begin] != ' ') {
      // The space comes from what the first character came from, as in the package.
      rewriter.put(" ", word.begin, first_end);
      rewriter.put(text.substr(word.begin, first_end - word.begin), word.begin, first_end);
    } else {
      rewriter.keep(word.begin, first_end);
    }
    rewriter.keep(first_end, word.end);
    rewriter.end();
  }
  rewriter.finish();
}

void MetaspaceSplitter::apply(Words* words, Fuel* fuel) const {
  fuel->spend(words->text.size());
  const bool begins_text = words->text.begins_text();
  Rewriter rewriter(words);
  for (const Range& word : words->ranges) {
    rewriter.begin(word);
    const std::string_view own = view_of(*words, word);
    const bool wanted = prepend_ == Prepend::kAlways ||
                        (prepend_ == Prepend::kFirst && word.begin == 0 && begins_text);
    size_t at = 0;
    if (wanted && own[0] != ' ' && !own.starts_with(mark_)) {
      at = utf8_size(own[0]);
      rewriter.put(mark_, word.begin, word.begin + at);
      rewriter.put(own.substr(0, at), word.begin, word.begin + at);
    }
    while (at < own.size()) {
      const size_t space = std::min(own.find(' ', at), own.size());
      rewriter.keep(word.begin + at, word.begin + space);
      if (space < own.size()) {
        rewriter.put(mark_, word.begin + space, word.begin + space + 1);
      }
      at = space + 1;
    }
    rewriter.end();
  }
  rewriter.finish();
  if (split_) {
    cut_each(words, [&](Range word) {
      const std::string_view own = view_of(*words, word);
      uint32_t begin = word.begin;
      for (size_t at = own.find(mark_); at < own.size(); at = own.find(mark_, at + 1)) {
        const uint32_t cut = word.begin + static_cast<uint32_t>(at);
        if (cut != begin) {
          words->next_ranges.push_back({begin, cut});
        }
        begin = cut;
      }
      words->next_ranges.push_back({begin, word.end});
    });
  }
}

}  // namespace headrace::text
