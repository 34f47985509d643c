#pragma once

// Conversations as callers write them, made ready for a text template.

#include <string>
#include <string_view>

#include "chat/raw_json.h"

namespace headrace::chat {

/// The messages, a JSON list, each with its content as one string.
///
/// Parts of text are joined by newlines; no content is an empty string. Arguments of tool calls are
/// objects, also where they are JSON text, missing or cut. What an earlier answer has as
/// "reasoning" or "thinking" is its "reasoning_content", too.
///
/// `end`, if not empty, is put behind the content of the last message, which must be an answer.
/// Throws Error, which names the message: kInvalidArgument, kUnsupported (pictures, clips, sounds).
std::string template_messages(Raw messages, std::string_view end);

}  // namespace headrace::chat
