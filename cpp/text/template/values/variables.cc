#include "text/template/values/variables.h"

#include <string>

#include "base/check.h"

namespace headrace::text::jinja {
namespace {

[[noreturn]] void fail_order(const char* what) {
  throw_error(ErrorCode::kInvalidArgument, "the variables of a chat template: ", what);
}

}  // namespace

void fail_variables_size(size_t limit) {
  throw_error(ErrorCode::kLimitExceeded,
              "the variables of the chat template, the messages among them, have more than the ",
              limit, " bytes allowed");
}

VariablesBuilder::VariablesBuilder(Run& run, size_t max_bytes) : run_(run), max_bytes_(max_bytes) {
  levels_.push_back({Kind::kDict, ListBuilder(run_), new_dict(run_, 0), {}});
}

void VariablesBuilder::add(const Value& value) {
  count(1);
  put(value);
}

void VariablesBuilder::add_text(std::string_view text, Kind kind) {
  count(text.size());
  Value value = run_.copied(text);
  value.kind = kind;
  put(value);
}

void VariablesBuilder::begin(Kind kind) {
  count(1);
  if (static_cast<int>(levels_.size()) > kMostVariableLevels) {
    fail_limit({"its variables are nested too deeply: more than ",
                std::to_string(kMostVariableLevels), " levels"});
  }
  Dict* const dict = kind == Kind::kDict ? new_dict(run_, 4) : nullptr;
  levels_.push_back({kind, ListBuilder(run_), dict, {}});
}

void VariablesBuilder::end() {
  if (levels_.size() < 2) {
    fail_order("an end() without a begin");
  }
  const Level& ended = levels_.back();
  if (!ended.key.is_missing()) {
    fail_order("a dict ends between a key and its value");
  }
  const Value value =
      ended.kind == Kind::kDict ? Value::of(ended.dict) : ended.items.value(ended.kind);
  levels_.pop_back();
  put(value);
}

Dict* VariablesBuilder::finish() {
  if (levels_.size() != 1) {
    fail_order("a list or dict that was begun hasn't ended");
  }
  if (!levels_.back().key.is_missing()) {
    fail_order("the last one has no value");
  }
  return levels_.back().dict;
}

void VariablesBuilder::count(size_t bytes) {
  run_.spend(1);
  if (bytes > max_bytes_ - bytes_) {
    fail_variables_size(max_bytes_);
  }
  bytes_ += bytes;
}

void VariablesBuilder::put(const Value& value) {
  Level& level = levels_.back();
  if (level.kind != Kind::kDict) {
    return level.items.add(value);
  }
  if (!level.key.is_missing()) {
    dict_set(run_, level.dict, level.key, value);
    level.key = {};
  } else if (levels_.size() > 1 || value.is_string()) {
    level.key = value;
  } else {
    fail_order("a name must be a string");
  }
}

}  // namespace headrace::text::jinja
