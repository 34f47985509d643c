#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "chat/folder_templates.h"
#include "chat/messages.h"
#include "chat/raw_json.h"
#include "headrace/chat.h"
#include "text/files/tokenizer_config.h"
#include "text/json/write.h"
#include "text/template/values/variables.h"

namespace headrace {
namespace {

using chat::append_key;
using chat::Kind;
using chat::Member;
using chat::Members;
using chat::Raw;

constexpr size_t kKeptCompiled = 8;
constexpr int kMostLevels = text::jinja::kMostVariableLevels;
constexpr int kMostToolLevels = kMostLevels - 1;         // within the object of all variables
constexpr int kMostMessageLevels = kMostToolLevels - 1;  // arguments of a call may get one more
/// Ends a message that goes on, while a template is rendered: of Unicode's noncharacters, which no
/// text has.
constexpr std::string_view kEnd = "\uFDD0end\uFDD1";
/// What the variables of a caller may not replace, beside the special tokens.
constexpr std::array kReserved = {"messages",
                                  "conversation",
                                  "tools",
                                  "tokenize",
                                  "range",
                                  "namespace",
                                  "strftime_now",
                                  "raise_exception",
                                  "chat_template",
                                  "add_generation_prompt",
                                  "continue_final_message"};

bool is_reserved(const std::string& name) {
  return std::ranges::find(kReserved, name) != kReserved.end() ||
         std::ranges::find(text::kSpecialTokenNames, name) != text::kSpecialTokenNames.end();
}

/// The tools as templates have them, "null" without any. Throws Error(kInvalidArgument).
std::string checked_tools(std::string_view json, size_t max_bytes) {
  if (json.empty()) return "null";
  const Raw tools = chat::checked_json(json, "tools", max_bytes, kMostToolLevels);
  if (chat::is_null(tools)) return "null";
  if (chat::kind_of(tools) != Kind::kList) {
    throw_error(ErrorCode::kInvalidArgument, "tools must be a list, got ", chat::shown(tools));
  }
  std::string made;
  for (const Raw tool : chat::items_of(tools)) {
    const Members members =
        chat::kind_of(tool) == Kind::kObject ? chat::members_of(tool) : Members();
    const Raw* function = members.find("function", Kind::kObject);
    const Raw* type = members.find("type");
    const Raw* name = nullptr;
    const Members parts = function == nullptr ? Members() : chat::members_of(*function);
    if (function != nullptr) name = parts.find("name", Kind::kString);
    if (name == nullptr || chat::inside(*name).empty() ||
        (type != nullptr && *type != "\"function\"")) {
      throw_error(ErrorCode::kInvalidArgument,
                  "tools: expected {\"type\": \"function\", \"function\": {\"name\": ...}}, got ",
                  chat::shown(tool));
    }
    made += made.empty() ? "[" : ", ";
    if (type == nullptr) {
      made += R"({"type": "function", )";
      made += tool.substr(1);
    } else {
      made += tool;
    }
  }
  return made.empty() ? "null" : made + "]";
}

Members checked_variables(std::string_view json, size_t max_bytes) {
  if (json.empty()) return {};
  const Raw variables = chat::checked_json(json, "variables", max_bytes, kMostLevels);
  if (chat::kind_of(variables) != Kind::kObject) {
    throw_error(ErrorCode::kInvalidArgument, "variables must be an object, got ",
                chat::shown(variables));
  }
  Members members = chat::members_of(variables);
  for (const Member& member : members.all) {
    if (is_reserved(member.name)) {
      throw_error(ErrorCode::kInvalidArgument, "variables: \"", member.name,
                  "\" is set by the engine, or by another one of ChatOptions");
    }
  }
  return members;
}

/// What the caller gives is read.
void check_read(const ChatTemplate& chosen, const Members& variables, bool has_tools) {
  const auto reads = [&](const std::string& name) {
    return std::ranges::binary_search(chosen.variables(), name);
  };
  if (has_tools && !reads("tools")) {
    throw_error(ErrorCode::kInvalidArgument,
                "tools: this model's chat template doesn't show them; leave them out, or give a "
                "chat_template that does");
  }
  for (const Member& member : variables.all) {
    if (reads(member.name)) continue;
    throw_error(ErrorCode::kInvalidArgument, "variables: the chat template doesn't read \"",
                member.name, "\"; leave it out");
  }
}

void append_member(std::string_view name, std::string_view value, std::string* object) {
  append_key(name, object);
  *object += value;
}

}  // namespace

class ChatTemplates::Impl {
 public:
  Impl(std::string folder, chat::FolderTemplates files, const TemplateLimits& limits)
      : folder_(std::move(folder)), files_(std::move(files)), limits_(limits) {}

  const chat::FolderTemplates& files() const { return files_; }
  size_t max_bytes() const { return limits_.max_variables_bytes; }

  /// Those that the caller's follow, as the beginning of an object.
  std::string first_variables() const {
    std::string object = "{";
    for (const auto& [name, token] : files_.special_tokens) {
      append_key(name, &object);
      text::json::append_string(token, &object);
    }
    append_member("enable_thinking", "true", &object);
    return object;
  }

  ChatTemplate choose(const std::string& wanted, bool with_tools) const {
    const auto& known = files_.by_name;
    if (!wanted.empty()) {
      const auto found = known.find(wanted);
      if (found == known.end() && wanted.find_first_of("{}\n") == std::string::npos) {
        throw_error(ErrorCode::kInvalidArgument, "chat_template \"", wanted,
                    "\" is neither a template nor the name of one of the model's: ", names());
      }
      return compiled(found == known.end() ? wanted : found->second);
    }
    auto found = with_tools ? known.find("tool_use") : known.end();
    if (found == known.end()) found = known.find("default");
    if (found == known.end()) {
      throw_error(ErrorCode::kNotFound, folder_, " has no default chat template (it has ", names(),
                  "): give one as ChatOptions::chat_template");
    }
    return compiled(found->second);
  }

 private:
  std::string names() const {
    std::string all;
    for (const auto& [name, text] : files_.by_name) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "none" : all;
  }

  /// Templates that were used last are kept.
  ChatTemplate compiled(const std::string& text) const {
    {
      const MutexLock lock(mutex_);
      const auto found = std::ranges::find(compiled_, text, &Compiled::text);
      if (found != compiled_.end()) {
        std::rotate(compiled_.begin(), found, found + 1);
        return compiled_.front().made;
      }
    }
    ChatTemplate made(text, limits_);
    const MutexLock lock(mutex_);
    compiled_.insert(compiled_.begin(), {text, made});
    if (compiled_.size() > kKeptCompiled) compiled_.pop_back();
    return made;
  }

  struct Compiled {
    std::string text;
    ChatTemplate made;
  };

  const std::string folder_;
  const chat::FolderTemplates files_;
  const TemplateLimits limits_;
  mutable Mutex mutex_;
  mutable std::vector<Compiled> compiled_ HEADRACE_GUARDED_BY(mutex_);
};

ChatTemplates::ChatTemplates(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplates::~ChatTemplates() = default;

std::shared_ptr<const ChatTemplates> ChatTemplates::load(const std::string& folder,
                                                         const TemplateLimits& limits) {
  return std::shared_ptr<const ChatTemplates>(new ChatTemplates(
      std::make_unique<Impl>(folder, chat::read_folder_templates(folder), limits)));
}

std::vector<std::string> ChatTemplates::names() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : impl_->files().by_name) names.push_back(name);
  return names;
}

std::optional<std::string> ChatTemplates::find(std::string_view name) const {
  const auto found = impl_->files().by_name.find(name);
  return found == impl_->files().by_name.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> ChatTemplates::variables(const ChatOptions& options) const {
  const bool with_tools = checked_tools(options.tools_json, impl_->max_bytes()) != "null";
  return impl_->choose(options.chat_template, with_tools).variables();
}

std::string ChatTemplates::render(std::string_view messages_json,
                                  const ChatOptions& options) const {
  const size_t max_bytes = impl_->max_bytes();
  const bool goes_on = options.continue_final_message;
  const Raw messages = chat::checked_json(messages_json, "messages", max_bytes, kMostMessageLevels);
  const std::string tools = checked_tools(options.tools_json, max_bytes);
  const Members given = checked_variables(options.variables_json, max_bytes);
  const std::string conversation = chat::template_messages(messages, goes_on ? kEnd : "");
  const ChatTemplate chosen = impl_->choose(options.chat_template, tools != "null");
  check_read(chosen, given, tools != "null");

  std::string variables = impl_->first_variables();
  for (const Member& member : given.all) append_member(member.name, member.value, &variables);
  append_member("messages", conversation, &variables);
  append_member("tools", tools, &variables);
  const bool opens = options.add_generation_prompt && !goes_on;
  append_member("add_generation_prompt", opens ? "true" : "false", &variables);
  std::string text = chosen.render(variables + "}");
  if (!goes_on) return text;
  const size_t end = text.rfind(kEnd);
  if (end == std::string::npos) {
    throw_error(ErrorCode::kInvalidArgument,
                "continue_final_message: the chat template doesn't show the last message as it is");
  }
  return text.substr(0, end);
}

}  // namespace headrace
