#include <string>
#include <string_view>

#include "base/check.h"
#include "text/regex/matchers.h"
#include "text/split/splitters.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

using json::Value;
using Steps = std::vector<std::unique_ptr<const Splitter>>;

constexpr int kMaxDepth = 20;

/// A component of the file, with errors that name it.
class Component {
 public:
  explicit Component(const Value& spec) : spec_(spec) {
    if (spec.object() == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "the tokenizer's pre_tokenizer isn't an object");
    }
    name_ = string("type");
  }

  const std::string& name() const { return name_; }

  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    throw_error(ErrorCode::kCorruptFile, "the tokenizer's pre_tokenizer", name_.empty() ? "" : " ",
                name_, " needs '", key, "', ", expected);
  }

  const Value& member(std::string_view key, std::string_view expected) const {
    const Value* value = spec_.find(key);
    if (value == nullptr) {
      wrong(key, expected);
    }
    return *value;
  }

  const std::string& string(std::string_view key) const {
    const std::string* value = member(key, "a string").string();
    if (value == nullptr) {
      wrong(key, "a string");
    }
    return *value;
  }

  bool boolean(std::string_view key) const {
    const bool* value = member(key, "true or false").boolean();
    if (value == nullptr) {
      wrong(key, "true or false");
    }
    return *value;
  }

  bool boolean(std::string_view key, bool otherwise) const {
    return has(key) ? boolean(key) : otherwise;
  }

  bool has(std::string_view key) const {
    const Value* value = spec_.find(key);
    return value != nullptr && !value->is_null();
  }

  std::string character(std::string_view key) const {
    const std::string& value = string(key);
    if (value.empty() || utf8_size(value[0]) != value.size()) {
      wrong(key, "one character");
    }
    return value;
  }

  Behavior behavior() const {
    const std::string& name = string("behavior");
    constexpr std::pair<std::string_view, Behavior> kNames[] = {
        {"Removed", Behavior::kRemoved},
        {"Isolated", Behavior::kIsolated},
        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
        {"MergedWithNext", Behavior::kMergedWithNext},
        {"Contiguous", Behavior::kContiguous},
    };
    for (const auto& [known, behavior] : kNames) {
      if (name == known) {
        return behavior;
      }
    }
    wrong("behavior",
          "one of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
  }

 private:
  const Value& spec_;
  std::string name_;
};

template <class Kind, class... Arguments>
void add(Steps* steps, Arguments&&... arguments) {
  steps->push_back(std::make_unique<Kind>(std::forward<Arguments>(arguments)...));
}

void add_split(const Component& component, Steps* steps) {
  constexpr std::string_view kExpected = "an object with the string 'Regex' or 'String'";
  const Value& pattern = component.member("pattern", kExpected);
  const Value* regex = pattern.find("Regex");
  const Value* literal = pattern.find("String");
  const Value* given = regex != nullptr ? regex : literal;
  if (given == nullptr || given->string() == nullptr || (regex != nullptr && literal != nullptr)) {
    component.wrong("pattern", kExpected);
  }
  add<RegexSplitter>(
      steps, regex != nullptr ? compile_regex(*regex->string()) : literal_regex(*literal->string()),
      component.behavior(), component.boolean("invert"));
}

void add_metaspace(const Component& component, Steps* steps) {
  using Prepend = MetaspaceSplitter::Prepend;
  Prepend prepend = Prepend::kAlways;
  const bool has_scheme = component.has("prepend_scheme");
  if (has_scheme) {
    const std::string& scheme = component.string("prepend_scheme");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      component.wrong("prepend_scheme", "one of always, first and never");
    }
    prepend = scheme == "always"  ? Prepend::kAlways
              : scheme == "first" ? Prepend::kFirst
                                  : Prepend::kNever;
  }
  if (!component.boolean("add_prefix_space", true) && prepend != Prepend::kNever) {
    component.wrong("prepend_scheme", "never, since 'add_prefix_space' is false");
  }
  add<MetaspaceSplitter>(steps, component.character("replacement"), prepend,
                         component.boolean("split", true));
}

/// What ByteLevel does before it spells bytes.
void add_byte_level(const Component& component, Steps* steps) {
  if (component.boolean("add_prefix_space")) {
    add<PrefixSpacer>(steps);
  }
  if (component.boolean("use_regex", true)) {
    add<RegexSplitter>(steps, own_matcher(kGpt2Pattern), Behavior::kIsolated, false);
  }
}

void add_length(const Component& component, Steps* steps) {
  int64_t length = 5;
  if (component.has("length")) {
    const int64_t* given = component.member("length", "a number").integer();
    length = given == nullptr ? 0 : *given;
  }
  if (length < 1) {
    component.wrong("length", "a whole number over 0");
  }
  add<LengthSplitter>(steps, static_cast<size_t>(length));
}

/// Components of which nothing but the name matters, or a small thing. False: it is none of them.
bool add_simple(const Component& component, Steps* steps) {
  const std::string& name = component.name();
  if (name == "WhitespaceSplit") {
    add<FlagSplitter>(steps, kSpace, Behavior::kRemoved);
  } else if (name == "Whitespace") {
    add<WordRunSplitter>(steps);
  } else if (name == "BertPreTokenizer") {
    add<FlagSplitter>(steps, kSpace, Behavior::kRemoved);
    add<FlagSplitter>(steps, kPunctuation8, Behavior::kIsolated);
  } else if (name == "Punctuation") {
    add<FlagSplitter>(steps, kPunctuation8,
                      component.has("behavior") ? component.behavior() : Behavior::kIsolated);
  } else if (name == "Digits") {
    add<FlagSplitter>(
        steps, kNumeric,
        component.boolean("individual_digits") ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (name == "CharDelimiterSplit") {
    add<RegexSplitter>(steps, literal_regex(component.character("delimiter")), Behavior::kRemoved,
                       false);
  } else {
    return false;
  }
  return true;
}

class Builder {
 public:
  SplitterSpec build(const Value& spec) {
    add_component(spec, 0);
    SplitterSpec result;
    result.byte_level = byte_level_;
    if (steps_.size() == 1) {
      result.splitter = std::move(steps_[0]);
    } else if (!steps_.empty()) {
      result.splitter = std::make_unique<SequenceSplitter>(std::move(steps_));
    }
    return result;
  }

 private:
  void add_component(const Value& spec, int depth) {
    const Component component(spec);
    const std::string& name = component.name();
    if (depth > kMaxDepth) {
      throw_error(ErrorCode::kLimitExceeded, "the tokenizer's pre_tokenizer is nested more than ",
                  kMaxDepth, " deep");
    }
    if (name == "Sequence") {
      const Value::List* list = component.member("pretokenizers", "a list").list();
      if (list == nullptr) {
        component.wrong("pretokenizers", "a list");
      }
      for (const Value& step : *list) {
        add_component(step, depth + 1);
      }
      return;
    }
    if (byte_level_) {
      // Such a step would see the alphabet's characters.
      throw_error(ErrorCode::kUnsupported, "the tokenizer's pre_tokenizer has ", name,
                  " behind ByteLevel");
    }
    if (name == "ByteLevel") {
      add_byte_level(component, &steps_);
      byte_level_ = true;
    } else if (name == "Split") {
      add_split(component, &steps_);
    } else if (name == "Metaspace") {
      add_metaspace(component, &steps_);
    } else if (name == "FixedLength") {
      add_length(component, &steps_);
    } else if (!add_simple(component, &steps_)) {
      throw_error(ErrorCode::kUnsupported, "the tokenizer's pre_tokenizer ", name,
                  " isn't supported");
    }
  }

  Steps steps_;
  bool byte_level_ = false;
};

}  // namespace

SplitterSpec make_splitter(const Value& spec) {
  return spec.is_null() ? SplitterSpec{} : Builder().build(spec);
}

}  // namespace headrace::text
