// Variables that a caller gives value by value.

#include <functional>
#include <initializer_list>
#include <stdexcept>

#include "cpp/text/template/rendered.h"

namespace headrace::text {
namespace {

using Give = std::function<void(TemplateVariables&)>;

std::string rendered_with(const Give& give, std::string_view source = "{{ x }}|{{ x|tojson }}") {
  return ChatTemplate(source).render(give);
}

ErrorCode code_of(const Give& give, const TemplateLimits& limits = {}) {
  try {
    ChatTemplate("{{ x }}", limits).render(give);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kOk;
}

TEST(TemplateVariables, AreWhatIsGiven) {
  const auto shown = [](const Give& value) {
    return rendered_with([&](TemplateVariables& to) {
      to.text("x");
      value(to);
    });
  };
  EXPECT_EQ(shown([](TemplateVariables& to) { to.none(); }), "None|null");
  EXPECT_EQ(shown([](TemplateVariables& to) { to.boolean(true); }), "True|true");
  EXPECT_EQ(shown([](TemplateVariables& to) { to.integer(INT64_MIN); }),
            "-9223372036854775808|-9223372036854775808");
  EXPECT_EQ(shown([](TemplateVariables& to) { to.big_integer("-9223372036854775809"); }),
            "-9223372036854775809|-9223372036854775809");
  EXPECT_EQ(shown([](TemplateVariables& to) { to.real(1); }), "1.0|1.0");
  EXPECT_EQ(shown([](TemplateVariables& to) { to.text("\xE4\xBD\xA0"); }),
            "\xE4\xBD\xA0|\"\xE4\xBD\xA0\"");
  EXPECT_EQ(shown([](TemplateVariables& to) {
              to.begin_list(), to.begin_tuple(), to.integer(1), to.end();
              to.begin_tuple(), to.end(), to.end();
            }),
            "[(1,), ()]|[[1], []]");
  EXPECT_EQ(shown([](TemplateVariables& to) {
              to.begin_dict(), to.integer(1), to.text("a"), to.none(), to.begin_dict(), to.end();
              to.end();
            }),
            "{1: 'a', None: {}}|{\"1\": \"a\", \"null\": {}}");
}

TEST(TemplateVariables, TextsAreCopied) {
  std::string text(100, 'a');
  EXPECT_EQ(rendered_with(
                [&](TemplateVariables& to) {
                  to.text("x"), to.text(text);
                  text.assign(100, 'b');
                },
                "{{ x }}"),
            std::string(100, 'a'));
}

TEST(TemplateVariables, LoneSurrogatesComeBack) {
  const auto give = [](TemplateVariables& to) { to.text("x"), to.text("a\xED\xA0\x80z"); };
  EXPECT_EQ(rendered_with(give, "{{ x }}{{ x|length }}{{ x[2] }}"), "a\xED\xA0\x80z3z");
  EXPECT_EQ(rendered_with(give, "{{ [x] }}{{ x|tojson(ensure_ascii=true) }}"),
            "['a\\ud800z']\"a\\ud800z\"");
}

TEST(TemplateVariables, WrongPlacesAreErrors) {
  for (const Give& wrong : std::initializer_list<Give>{
           [](TemplateVariables& to) { to.end(); }, [](TemplateVariables& to) { to.text("x"); },
           [](TemplateVariables& to) { to.integer(1), to.integer(2); },
           [](TemplateVariables& to) { to.text("x"), to.begin_list(); },
           [](TemplateVariables& to) { to.text("x"), to.begin_dict(), to.none(), to.end(); },
           [](TemplateVariables& to) {
             to.text("x"), to.begin_dict(), to.begin_list(), to.end(), to.none(), to.end();
           }}) {
    EXPECT_EQ(code_of(wrong), ErrorCode::kInvalidArgument);
  }
}

TEST(TemplateVariables, HaveLimits) {
  const auto many = [](TemplateVariables& to) {
    to.text("x"), to.begin_list();
    for (int i = 0; i < 1000; ++i) to.none();
    to.end();
  };
  EXPECT_EQ(code_of(many), ErrorCode::kOk);
  EXPECT_EQ(code_of(many, {.max_variables_bytes = 1000}), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(many, {.max_memory_bytes = 10000}), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(many, {.max_steps = 900}), ErrorCode::kLimitExceeded);
  const auto deep = [](int levels) {
    return [levels](TemplateVariables& to) {
      to.text("x");
      for (int i = 0; i < levels; ++i) to.begin_list();
      for (int i = 0; i < levels; ++i) to.end();
    };
  };
  EXPECT_EQ(code_of(deep(100)), ErrorCode::kOk);
  EXPECT_EQ(code_of(deep(101)), ErrorCode::kLimitExceeded);
}

TEST(TemplateVariables, WhatTheGiverThrowsComesThrough) {
  EXPECT_THROW(rendered_with([](TemplateVariables&) { throw std::range_error("mine"); }),
               std::range_error);
}

TEST(TemplateVariables, IntegersOfMoreThan64BitsAreUnsupported) {
  const auto give = [](TemplateVariables& to) {
    to.text("x"), to.big_integer("18446744073709551616");
  };
  for (const char* source :
       {"{{ x + 1 }}", "{{ -x }}", "{{ x < 1 }}", "{{ '%d' % x }}", "{{ '{:d}'.format(x) }}",
        "{{ 2 ** 70 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ 'ffffffffffffffffff'|int(0, 16) }}"}) {
    try {
      rendered_with(give, source);
      ADD_FAILURE() << source;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << source << error.what();
    }
  }
}

}  // namespace
}  // namespace headrace::text
