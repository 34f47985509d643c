#include "text/template/syntax/parser.h"

#include <algorithm>

namespace headrace::text::jinja {
namespace {

constexpr std::string_view kSpecial[kSpecialNames] = {"loop", "caller", "kwargs", "varargs",
                                                      "self"};

std::string_view described(const LexedToken& token) {
  switch (token.kind) {
    case Token::kEnd:
      return "end of template";
    case Token::kData:
      return "template data / text";
    case Token::kVariableBegin:
      return "begin of print statement";
    case Token::kVariableEnd:
      return "end of print statement";
    case Token::kBlockBegin:
      return "begin of statement block";
    case Token::kBlockEnd:
      return "end of statement block";
    default:
      return token.text;
  }
}

}  // namespace

Parser::Parser(std::string_view source, Run& run) : run_(run), tokens_(lex(source, run.arena)) {
  for (const std::string_view name : kSpecial) {
    id_of(name);
  }
}

Program Parser::parse() {
  const Watching watching(*this);
  Program program;
  program.body = subparse({});
  if (watching.read(kSelfName)) {
    fail_unsupported(1, {"the variable self"});
  }
  return program;
}

bool Parser::is_any_name(Names names) const noexcept {
  return is(Token::kName) && std::find(names.begin(), names.end(), now().text) != names.end();
}

bool Parser::skip_if(Token kind) noexcept {
  const bool found = is(kind);
  if (found) {
    take();
  }
  return found;
}

bool Parser::skip_if_name(std::string_view name) noexcept {
  const bool found = is_name(name);
  if (found) {
    take();
  }
  return found;
}

LexedToken Parser::expect(Token kind, std::string_view wanted) {
  if (!is(kind)) {
    if (is(Token::kEnd)) {
      fail_at(now().line, {"unexpected end of template, expected '", wanted, "'."});
    }
    fail_at(now().line, {"expected token '", wanted, "', got '", described(now()), "'"});
  }
  return take();
}

LexedToken Parser::expect_name(std::string_view name) {
  if (!is_name(name)) {
    expect(Token::kEnd, name);
    fail_at(now().line, {"unexpected end of template, expected '", name, "'."});
  }
  return take();
}

void Parser::unexpected(const LexedToken& token) const {
  fail_at(token.line, {"unexpected '", described(token), "'"});
}

std::string_view Parser::described_now() const noexcept { return described(now()); }

void Parser::above(Node* node, const Node* child) {
  if (child == nullptr || child->height < node->height) {
    return;
  }
  if (child->height >= kMostLevels) {
    Fault fault(ErrorCode::kLimitExceeded, "it is nested too deeply: more than 200 levels");
    fault.line = node->line;
    throw fault;
  }
  node->height = static_cast<uint16_t>(child->height + 1);
}

void Parser::above(Node* node, const Arguments& arguments) {
  for (const Node* child : arguments.positional) {
    above(node, child);
  }
  for (const Keyword& keyword : arguments.named) {
    above(node, keyword.value);
  }
  above(node, arguments.star);
  above(node, arguments.star_star);
}

uint32_t Parser::id_of(std::string_view name) {
  return ids_.try_emplace(name, static_cast<uint32_t>(ids_.size())).first->second;
}

NameNode* Parser::make_name(const LexedToken& token, NameUse use) {
  NameNode* const node = make<NameNode>(NodeKind::kName, token.line);
  node->use = use;
  node->name = token.text;
  node->id = id_of(token.text);
  mention(node->id, use == NameUse::kLoad);
  if (node->id == kLoopName && use == NameUse::kStore) {
    loop_stores_.push_back(token.line);
  }
  return node;
}

void Parser::mention(uint32_t id, bool loads) {
  if (id >= kSpecialNames) {
    return;
  }
  for (Watch& watch : watches_) {
    (loads ? watch.read : watch.hidden)[id] |= !(loads && watch.hidden[id]);
  }
}

}  // namespace headrace::text::jinja
