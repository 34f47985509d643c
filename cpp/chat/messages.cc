#include "chat/messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/chat.h"
#include "headrace/status.h"
#include "text/json/write.h"
#include "text/unicode/utf8.h"

namespace headrace::chat {
namespace {

constexpr std::array<std::string_view, 4> kPictures = {"image", "image_url", "video", "video_url"};
constexpr std::array<std::string_view, 3> kSounds = {"audio", "audio_url", "input_audio"};
constexpr std::string_view kNoObject =
    "INVALID_JSON";  // has what is no object: a call that was cut
constexpr int kArgumentDepth = 80;

template <class... Parts>
[[noreturn]] void fail(const std::string& place, const Parts&... parts) {
  throw_error(ErrorCode::kInvalidArgument, place, ": ", parts...);
}

/// What a part of content says, still escaped.
std::string_view part_text(Raw part, const std::string& place) {
  if (kind_of(part) == Kind::kString) return inside(part);
  if (kind_of(part) != Kind::kObject) fail(place, "a part of content is ", shown(part));
  const Members members = members_of(part);
  const Raw* type = members.find("type", Kind::kString);
  const std::string kind = type == nullptr ? "" : text_of(*type);
  if (std::ranges::find(kPictures, kind) != kPictures.end()) {
    throw_error(ErrorCode::kUnsupported, place, ": content part of type \"", kind,
                "\": chats in C++ and C read text only; send text parts, or submit the ids and "
                "RequestOptions::media");
  }
  if (std::ranges::find(kSounds, kind) != kSounds.end()) {
    throw_error(ErrorCode::kUnsupported, place, ": content part of type \"", kind,
                "\": Headrace has no models that hear; send text");
  }
  if (kind != "text") fail(place, "unknown type of a content part: ", shown(part));
  const Raw* text = members.find("text", Kind::kString);
  if (text == nullptr) fail(place, "a text part must have a string under \"text\"");
  return inside(*text);
}

/// A message's content, still escaped.
std::string content_of(const Raw* content, const std::string& place) {
  if (content == nullptr || is_null(*content)) return "";
  if (kind_of(*content) == Kind::kString) return std::string(inside(*content));
  if (kind_of(*content) != Kind::kList) {
    fail(place, "content must be a string or a list of parts, got ", shown(*content));
  }
  std::string joined;
  bool first = true;
  for (const Raw part : items_of(*content)) {
    if (!first) joined += "\\n";
    first = false;
    joined += part_text(part, place);
  }
  return joined;
}

/// The object that templates go through, whatever an earlier turn has left of it.
std::string arguments_of(const Raw* given) {
  std::string value(given == nullptr ? "null" : *given);
  for (int i = 0; i < 2; ++i) {  // an object, JSON, or JSON in a string of JSON
    if (kind_of(value) != Kind::kString) break;
    const std::string text = text_of(value);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return "{}";
    const std::optional<Raw> parsed = json_in(text, kArgumentDepth);
    if (!parsed) break;
    value = *parsed;
  }
  if (is_null(value)) return "{}";
  if (kind_of(value) == Kind::kObject) return value;
  std::string wrapped = "{";
  append_key(kNoObject, &wrapped);
  return wrapped + value + "}";
}

struct Changed {
  std::string_view name;
  std::string value;
  bool written = false;
};

/// An object with some members changed, or added at its end.
void append_object(const Members& members, std::vector<Changed> changes, std::string* out) {
  const auto write = [out](Changed& change) {
    if (std::exchange(change.written, true)) return;
    append_key(change.name, out);
    *out += change.value;
  };
  *out += '{';
  for (const Member& member : members.all) {
    const auto change = std::ranges::find(changes, member.name, &Changed::name);
    if (change != changes.end()) {
      write(*change);
    } else {
      append_key(member.name, out);
      *out += member.value;
    }
  }
  std::ranges::for_each(changes, write);
  *out += '}';
}

void append_call(Raw call, std::string* out) {
  const Members members = kind_of(call) == Kind::kObject ? members_of(call) : Members();
  const Raw* function = members.find("function", Kind::kObject);
  if (function == nullptr) {
    *out += call;
    return;
  }
  const Members parts = members_of(*function);
  std::string changed;
  append_object(parts, {{"arguments", arguments_of(parts.find("arguments"))}}, &changed);
  append_object(members, {{"function", std::move(changed)}}, out);
}

class Message {
 public:
  Message(Raw message, std::string place)
      : place_(std::move(place)), members_(checked_members(message)) {
    const Raw* role = members_.find("role", Kind::kString);
    if (role == nullptr || inside(*role).empty()) fail(place_, "it must have a role");
    role_ = text_of(*role);
    if (const Raw* calls = members_.find("tool_calls"); calls != nullptr && !is_null(*calls)) {
      if (kind_of(*calls) != Kind::kList) fail(place_, "tool_calls must be a list");
      calls_ = items_of(*calls);
    }
    const Raw* content = members_.find("content");
    if (content == nullptr && calls_.empty()) fail(place_, "it has no content");
    content_ = content_of(content, place_);
    for (const char* name : {"reasoning", "thinking"}) {
      // As other servers and clients call it; templates know one name.
      const Raw* reasoning = members_.find(name, Kind::kString);
      if (reasoning != nullptr) reasoning_ = *reasoning;
    }
    const Raw* known = members_.find("reasoning_content");
    if (known != nullptr && !is_null(*known)) reasoning_ = {};
  }

  void mark_end(std::string_view end) {
    if (role_ != "assistant" || content_.empty()) {
      fail(place_, "continue_final_message needs an answer with content as the last message");
    }
    content_ += end;
  }

  void append(std::string* out) const {
    std::vector<Changed> changes = {{"content", '"' + content_ + '"'}};
    if (!reasoning_.empty()) changes.push_back({"reasoning_content", std::string(reasoning_)});
    if (!calls_.empty()) {
      std::string calls;
      for (const Raw call : calls_) {
        calls += calls.empty() ? "[" : ", ";
        append_call(call, &calls);
      }
      changes.push_back({"tool_calls", calls + "]"});
    }
    append_object(members_, std::move(changes), out);
  }

 private:
  Members checked_members(Raw message) const {
    if (kind_of(message) != Kind::kObject) fail(place_, "it must be an object");
    return members_of(message);
  }

  const std::string place_;
  const Members members_;
  std::string role_;
  std::string content_;  ///< still escaped
  std::vector<Raw> calls_;
  Raw reasoning_;
};

}  // namespace

std::string template_messages(Raw messages, std::string_view end) {
  if (kind_of(messages) != Kind::kList) {
    throw_error(ErrorCode::kInvalidArgument, "messages must be a list, got ", shown(messages));
  }
  const std::vector<Raw> items = items_of(messages);
  if (items.empty()) throw_error(ErrorCode::kInvalidArgument, "messages must not be empty");
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) {
    Message message(items[i], str_cat("messages[", i, "]"));
    if (!end.empty() && i + 1 == items.size()) message.mark_end(end);
    if (i > 0) out += ", ";
    message.append(&out);
  }
  return out + "]";
}

}  // namespace headrace::chat

std::string headrace::chat_message(std::string_view role, std::string_view content) {
  std::string message = "{";
  for (const auto& [name, value] : {std::pair("role", role), std::pair("content", content)}) {
    const size_t invalid = text::invalid_utf8_at(value);
    if (invalid != text::kValid) {
      throw_error(ErrorCode::kInvalidArgument, "the ", name, " of a message is not UTF-8 at byte ",
                  invalid);
    }
    chat::append_key(name, &message);
    text::json::append_string(value, &message);
  }
  return message + "}";
}
