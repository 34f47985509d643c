#include "text/template/values/fault.h"

#include "text/unicode/utf8.h"

namespace headrace::text::jinja {
namespace {

std::string joined(Parts parts) {
  std::string text;
  for (const std::string_view part : parts) {
    text += part.size() > 400 ? shortened(part, 400) : std::string(part);
  }
  return text;
}

}  // namespace

void fail(Parts message) { throw Fault(ErrorCode::kInvalidArgument, joined(message)); }

void fail_at(uint32_t line, Parts message) {
  Fault fault(ErrorCode::kInvalidArgument, joined(message));
  fault.line = line;
  throw fault;
}

void fail_limit(Parts message) { throw Fault(ErrorCode::kLimitExceeded, joined(message)); }

void fail_unsupported(uint32_t line, Parts message) {
  Fault fault(ErrorCode::kUnsupported, joined(message));
  fault.line = line;
  throw fault;
}

void fail_big_integer() { fail_unsupported(0, {"computing with integers of more than 64 bits"}); }

}  // namespace headrace::text::jinja
