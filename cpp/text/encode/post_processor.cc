#include "text/encode/post_processor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "text/json/fields.h"
#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

constexpr int kMaxSteps = 32;
constexpr size_t kMaxPieces = 1024;
constexpr size_t kMaxSpecialIds = 4096;
constexpr char32_t kAlphabetSpace = 0x120;

bool is_space(std::string_view text, size_t at) {
  const char32_t value = next_char(text, &at);
  return value == kAlphabetSpace || has_flag(value, kSpace);
}

size_t back(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

size_t leading_spaces(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size() && is_space(text, at); at += utf8_size(text[at])) ++count;
  return count;
}

size_t trailing_spaces(std::string_view text) {
  size_t count = 0;
  for (size_t end = text.size(); end > 0 && is_space(text, back(text, end));
       end = back(text, end)) {
    ++count;
  }
  return count;
}

int32_t type_of(const json::Value& piece) {
  const json::Value* type = piece.find("type_id");
  return type == nullptr ? 0 : json::id_of(*type, "type_id");
}

}  // namespace

PostProcessor::PostProcessor(const json::Value& spec) {
  if (!spec.is_null()) add(spec, 0);
}

void PostProcessor::add(const json::Value& spec, int depth) {
  const std::string& type = json::string_of(spec, "type");
  if (depth > kMaxSteps) {
    throw_error(ErrorCode::kLimitExceeded, "post_processor: nested too deeply");
  }
  if (type == "Sequence") {
    for (const json::Value& step : json::list_of(spec, "processors")) add(step, depth + 1);
  } else if (type == "TemplateProcessing") {
    add_template(spec);
  } else if (type == "BertProcessing") {
    add_classifier(spec, 1, 1);
  } else if (type == "RobertaProcessing") {
    add_trim(spec);
    add_classifier(spec, 2, 0);
  } else if (type == "ByteLevel") {
    add_trim(spec);
  } else {
    throw_error(ErrorCode::kUnsupported, "post_processor: unknown component \"", type, "\"");
  }
}

void PostProcessor::check_alone() const {
  if (!pieces_.empty()) {
    throw_error(ErrorCode::kUnsupported,
                "post_processor: only one of its steps may add special tokens");
  }
}

void PostProcessor::add_trim(const json::Value& spec) {
  const bool prefix = json::bool_of(spec, "add_prefix_space");
  if (json::bool_of(spec, "trim_offsets") && trims_.size() < kMaxSteps) trims_.push_back(prefix);
}

/// [CLS] text [SEP]; of two texts [CLS] text [SEP] ... text [SEP].
void PostProcessor::add_classifier(const json::Value& spec, int between, int32_t type) {
  check_alone();
  const auto id = [&](const char* name) {
    const json::Value::List& pair = json::list_of(spec, name);
    if (pair.size() != 2 || pair[0].string() == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "post_processor: \"", name,
                  "\" must be a token and its id");
    }
    return json::id_of(pair[1], name);
  };
  const int32_t end = id("sep");
  pieces_ = {{.ids = {id("cls")}}, {.place = Place::kFirst}, {.ids = {end}}};
  without_special_ = false;  // the text stays as it is
  pair_ = pieces_;
  pair_.back().ids.assign(static_cast<size_t>(between), end);
  pair_.push_back({.place = Place::kSecond, .type = type});
  pair_.push_back({.ids = {end}, .type = type});
}

void PostProcessor::add_template(const json::Value& spec) {
  check_alone();
  pieces_ = read_template(spec, "single", false);
  if (const json::Value* pair = spec.find("pair"); pair != nullptr && !pair->is_null()) {
    pair_ = read_template(spec, "pair", true);
  }
}

std::vector<PostProcessor::Piece> PostProcessor::read_template(const json::Value& spec,
                                                               const char* key, bool pair) const {
  const json::Value* tokens = spec.find("special_tokens");
  const json::Value::List& pieces = json::list_of(spec, key);
  if (pieces.size() > kMaxPieces) {
    throw_error(ErrorCode::kLimitExceeded, "post_processor: its template has more than ",
                kMaxPieces, " pieces");
  }
  std::vector<Piece> out;
  size_t special_ids = 0;
  bool has_first = false, has_second = false;
  for (const json::Value& piece : pieces) {
    if (const json::Value* sequence = piece.find("Sequence")) {
      const std::string& text = json::string_of(*sequence, "id");
      const bool second = pair && text == "B";
      if (!second && text != "A") {
        throw_error(ErrorCode::kCorruptFile, "post_processor: its template for ",
                    pair ? "two texts" : "one text", " names another");
      }
      if (std::exchange(second ? has_second : has_first, true)) {
        throw_error(ErrorCode::kUnsupported, "post_processor: its template has the text twice");
      }
      out.push_back({.place = second ? Place::kSecond : Place::kFirst,
                     .type = pair ? type_of(*sequence) : 0});
      continue;
    }
    const json::Value* special = piece.find("SpecialToken");
    if (special == nullptr) {
      throw_error(ErrorCode::kCorruptFile, "post_processor: its template has an unknown piece");
    }
    const std::string& name = json::string_of(*special, "id");
    const json::Value* token = tokens == nullptr ? nullptr : tokens->find(name);
    if (token == nullptr) {
      throw_error(ErrorCode::kCorruptFile,
                  "its post_processor does not define the special token \"", name, "\"");
    }
    Piece& added = out.emplace_back();
    if (pair) added.type = type_of(*special);
    for (const json::Value& id : json::list_of(*token, "ids")) {
      if (++special_ids > kMaxSpecialIds) {
        throw_error(ErrorCode::kLimitExceeded, "post_processor: its template has more than ",
                    kMaxSpecialIds, " special ids");
      }
      added.ids.push_back(json::id_of(id, "ids"));
    }
  }
  return out;
}

int32_t PostProcessor::largest_id() const noexcept {
  int32_t largest = -1;
  for (const std::vector<Piece>* pieces : {&pieces_, &pair_}) {
    for (const Piece& piece : *pieces) {
      for (const int32_t id : piece.ids) largest = std::max(largest, id);
    }
  }
  return largest;
}

void PostProcessor::trim(std::string_view text, std::string_view spelling, bool first,
                         Range* range) const {
  for (const bool prefix : trims_) {
    size_t leading = leading_spaces(spelling);
    const size_t trailing = trailing_spaces(spelling);
    if (prefix && leading == 1 && (first || range->begin == 0)) leading = 0;  // it was put there
    size_t begin = range->begin;
    for (; leading > 0 && begin < range->end; --leading) begin += utf8_size(text[begin]);
    range->begin = static_cast<uint32_t>(begin);
    size_t end = range->end;
    size_t left = trailing;
    for (; left > 0 && end > 0; --left) end = back(text, end);
    if (left == 0) range->end = static_cast<uint32_t>(std::max<size_t>(end, range->begin));
  }
}

void PostProcessor::apply(bool special, std::vector<int32_t>* ids,
                          std::vector<Range>* ranges) const {
  if (pieces_.empty() || (!special && !without_special_)) return;
  std::vector<int32_t> text_ids;
  std::vector<Range> text_ranges;
  text_ids.swap(*ids);
  if (ranges != nullptr) text_ranges.swap(*ranges);
  for (const Piece& piece : pieces_) {
    const bool text = piece.place == Place::kFirst;
    if (!text && !special) continue;
    const std::vector<int32_t>& from = text ? text_ids : piece.ids;
    ids->insert(ids->end(), from.begin(), from.end());
    if (ranges == nullptr) continue;
    if (text) {
      ranges->insert(ranges->end(), text_ranges.begin(), text_ranges.end());
    } else {
      ranges->resize(ids->size());
    }
  }
}

void PostProcessor::join(std::span<const int32_t> first, std::span<const int32_t> second,
                         std::vector<int32_t>* ids, std::vector<int32_t>* types) const {
  ids->clear();
  types->clear();
  for (const Piece& piece : pair_) {
    const std::span<const int32_t> from = piece.place == Place::kFirst    ? first
                                          : piece.place == Place::kSecond ? second
                                                                          : piece.ids;
    ids->insert(ids->end(), from.begin(), from.end());
    types->resize(ids->size(), piece.type);
  }
}

}  // namespace headrace::text
