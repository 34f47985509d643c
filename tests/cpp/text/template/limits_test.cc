// What a template may cost, and what a hostile one gets instead.

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cpp/text/template/rendered.h"

namespace headrace::text {
namespace {

ErrorCode code_of(const std::string& source, std::string_view variables = "{}",
                  const TemplateLimits& limits = {}) {
  try {
    ChatTemplate(source, limits).render(variables);
  } catch (const Error& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 400u) << source.substr(0, 80);
    return error.code();
  }
  return ErrorCode::kOk;
}

std::string repeated(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

TEST(TemplateLimits, OneOperationMayNotBeHuge) {
  for (const char* costly : {"'a' * 10**9", "[0] * 10**9", "'x'|center(10**9)", "'%999999999d' % 1",
                             "'{:999999999}'.format(1)", "('a' * 100000).replace('', 'b' * 100000)",
                             "range(99999)|join('a' * 100000)", "'a'|indent(10**9, true)",
                             "('\\t' * 100000).expandtabs(100000)", "[1]|slice(999999999)|list",
                             "[1]|batch(999999999, 1)|list", "[1]|tojson(indent=999999999)",
                             "('{0}' * 100000).format('a' * 100000)", "'%.999999f' % 1"}) {
    EXPECT_EQ(code_of(std::string("{{ ") + costly + " }}"), ErrorCode::kLimitExceeded) << costly;
  }
}

TEST(TemplateLimits, ManyOperationsMayNotBeTooMany) {
  const TemplateLimits limits{.max_steps = 100'000};
  const std::string loops =
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(code_of(loops, "{}", limits), ErrorCode::kLimitExceeded);
  const std::string calls =
      "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}";
  EXPECT_EQ(code_of(calls, "{}", limits), ErrorCode::kLimitExceeded);
  const std::string grows =
      "{% set n = namespace(x='ab') %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor "
      "%}";
  EXPECT_EQ(code_of(grows), ErrorCode::kLimitExceeded);
}

// Each of these looks at 100,000 bytes, 200 times.
TEST(TemplateLimits, WhatLooksAtLongTextsPaysForThem) {
  const TemplateLimits limits{.max_steps = 1'000'000};
  for (const char* costly : {"s is lower", "s is upper", "d[s] is defined", "s.removeprefix(t)",
                             "s.removesuffix(t)", "s.count('')", "'x'|truncate(200000, true, s)",
                             "s.rsplit(u, 1)", "s.rfind(u)", "s.rpartition(u)"}) {
    const std::string source =
        "{% set s = 'a' * 100000 %}{% set t = s ~ '' %}{% set u = 'a' * 50000 ~ 'b' %}"
        "{% set d = {'a': 1} %}{% for i in range(200) %}{% if TEST %}{% endif %}{% endfor %}";
    EXPECT_EQ(code_of(std::string(source).replace(source.find("TEST"), 4, costly), "{}", limits),
              ErrorCode::kLimitExceeded)
        << costly;
    EXPECT_EQ(code_of(std::string(source).replace(source.find("TEST"), 4, "i"), "{}", limits),
              ErrorCode::kOk);
  }
}

TEST(TemplateLimits, LongListsOfNamesPayForTheSearchForTwins) {
  const TemplateLimits limits{.max_steps = 1'000'000};
  std::string parameters = "a";
  std::string keywords = "a=1";
  for (int i = 0; i < 3000; ++i) {
    parameters += ", a" + std::to_string(i);
    keywords += ", a" + std::to_string(i) + "=1";
  }
  EXPECT_EQ(code_of("{% macro f(" + parameters + ") %}{% endmacro %}", "{}", limits),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{% if false %}{{ f(" + keywords + ") }}{% endif %}", "{}", limits),
            ErrorCode::kLimitExceeded);
}

TEST(TemplateLimits, NumbersBeyondWhatFieldsAndRangesHoldAreErrors) {
  EXPECT_EQ(code_of("{{ '%*d' % (-9223372036854775807 - 1, 1) }}"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of("{{ range(0, 9223372036854775807, 4611686018427387904)[:]|string }}"),
            ErrorCode::kUnsupported);
  EXPECT_EQ(rendered("{{ range(0, 10, 3)[1:]|list }}"), "[3, 6, 9]");
  EXPECT_NE(rendered("{{ '%\u00e9' % 1 }}").find("character '\xC3\xA9'"), std::string::npos);
  EXPECT_EQ(code_of("{{ strftime_now('a\\0b') }}"), ErrorCode::kInvalidArgument);
}

TEST(TemplateLimits, LimitsHaveLimits) {
  const size_t large = size_t{1} << 32;
  for (const TemplateLimits& limits :
       {TemplateLimits{.max_template_bytes = large}, TemplateLimits{.max_variables_bytes = large},
        TemplateLimits{.max_output_bytes = large}, TemplateLimits{.max_memory_bytes = large},
        TemplateLimits{.max_depth = 0}, TemplateLimits{.max_depth = 201}}) {
    EXPECT_EQ(code_of("", "{}", limits), ErrorCode::kInvalidArgument);
  }
}

TEST(TemplateLimits, DoubledListsEnd) {
  const std::string doubled =
      "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor "
      "%}";
  const TemplateLimits limits{.max_steps = 100'000};
  for (const char* use : {"{{ n.x|tojson }}", "{{ n.x }}", "{{ n.x == [n.x, n.x][0][:] }}"}) {
    EXPECT_NE(code_of(doubled + use, "{}", limits), ErrorCode::kInvalidArgument) << use;
  }
}

TEST(TemplateLimits, Depth) {
  EXPECT_EQ(code_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{{ " + repeated("(", 1000) + "1" + repeated(")", 1000) + " }}"),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{{ " + repeated("[", 1000) + repeated("]", 1000) + " }}"),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of(repeated("{% if x %}", 1000) + repeated("{% endif %}", 1000)),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{{ " + repeated("not ", 1000) + "1 }}"), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{{ " + repeated("- ", 1000) + "1 }}"), ErrorCode::kLimitExceeded);
  EXPECT_EQ(code_of("{{ 1" + repeated(" + 1", 1000) + " }}"), ErrorCode::kLimitExceeded);
  EXPECT_NE(code_of("{{ x }}", "{\"x\": " + repeated("[", 1000) + repeated("]", 1000) + "}"),
            ErrorCode::kOk);
  EXPECT_EQ(code_of("{{ 1" + repeated(" ~ 1", 1000) + " }}"), ErrorCode::kOk);
}

#ifdef HEADRACE_ASAN
constexpr size_t kStack = size_t{64} << 20;  // whose frames are many times as large
constexpr size_t kMostStack = kStack;
#else
constexpr size_t kStack = size_t{1} << 20;
constexpr size_t kMostStack = size_t{256} << 10;
#endif

/// Bytes of its stack that a thread writes to while it works, those that any thread needs included.
size_t stack_used(void (*work)()) {
  constexpr size_t kPage = 4096;
  constexpr char kPaint = '\x5A';
  const std::unique_ptr<char, decltype(&std::free)> stack(
      static_cast<char*>(std::aligned_alloc(kPage, kStack)), &std::free);
  std::memset(stack.get(), kPaint, kStack);
  pthread_attr_t attributes;
  EXPECT_EQ(pthread_attr_init(&attributes), 0);
  EXPECT_EQ(pthread_attr_setstack(&attributes, stack.get(), kStack), 0);
  const auto start = [](void* what) -> void* {
    reinterpret_cast<void (*)()>(what)();
    return nullptr;
  };
  pthread_t thread{};
  EXPECT_EQ(pthread_create(&thread, &attributes, start, reinterpret_cast<void*>(work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const std::string_view bytes(stack.get(), kStack);
  return kStack - std::min(kStack, bytes.find_first_not_of(kPaint));
}

TEST(TemplateLimits, FullDepthFitsASmallStack) {
  const size_t idle = stack_used([] {});
  const size_t used = stack_used([] {
    const std::string deep =
        "{% set n = namespace(x=[]) %}{% for i in range(500) %}"
        "{% set n.x = USE %}{% endfor %}";
    for (const char* use : {"[n.x]", "(n.x,)", "{'a': n.x}"}) {
      std::string source = deep;
      source.replace(source.find("USE"), 3, use);
      for (const char* end : {"{{ n.x }}", "{{ n.x|tojson }}", "{{ n.x == (n.x|list) }}",
                              "{{ {n.x: 1} }}", "{{ [n.x, n.x]|sort }}"}) {
        rendered(source + end);
      }
    }
    for (const auto& [open, close] :
         std::vector<std::pair<const char*, const char*>>{{"(", ")"},
                                                          {"[", "]"},
                                                          {"{1: ", "}"},
                                                          {"x[", "]"},
                                                          {"f(", ")"},
                                                          {"1|join(", ")"},
                                                          {"not ", ""},
                                                          {"-", ""},
                                                          {"1 if 1 else ", ""},
                                                          {"1 or 2 and not 3 < 4 + 5 ~ 6 * ", ""},
                                                          {"x is eq(", ")"},
                                                          {"(1 if ", " else 2)"}}) {
      rendered("{{ " + repeated(open, 300) + "1" + repeated(close, 300) + " }}");
      rendered("{{ " + repeated(open, 30) + "1" + repeated(close, 30) + " }}");
    }
    for (const char* body :
         {"{{ f() }}", "{% if f() %}{% endif %}", "{% set x %}{{ f() }}{% endset %}",
          "{% for i in [1] if f() %}{% endfor %}", "{{ [f(*[], **{})] }}",
          "{% call f() %}{% endcall %}{{ caller }}", "{{ f(f()) ~ 1 }}",
          "{% filter upper %}{{ f() }}{% endfilter %}", "{% with x = f() %}{% endwith %}",
          "{% generation %}{{ f() }}"
          "{% endgeneration %}"}) {
      EXPECT_NE(rendered(std::string("{% macro f(a=1) %}") + body + "{% endmacro %}{{ f() }}")
                    .find("too deeply"),
                std::string::npos)
          << body;
    }
    rendered("{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}");
    rendered(repeated("{% if x is undefined %}", 150) + repeated("{% endif %}", 150));
    rendered(repeated("{% for x in [1] %}", 150) + repeated("{% endfor %}", 150));
  });
  EXPECT_LE(used - idle, kMostStack);
}

TEST(TemplateLimits, Sizes) {
  TemplateLimits limits;
  limits.max_template_bytes = 10;
  EXPECT_EQ(code_of("12345678901", "{}", limits), ErrorCode::kLimitExceeded);
  limits = {.max_variables_bytes = 10};
  EXPECT_EQ(code_of("x", R"({"a": "1234567"})", limits), ErrorCode::kLimitExceeded);
  limits = {.max_output_bytes = 10};
  EXPECT_EQ(code_of("{{ 'a' * 11 }}", "{}", limits), ErrorCode::kLimitExceeded);
  limits = {.max_memory_bytes = 1 << 16};
  EXPECT_EQ(code_of("{{ ('a' * 100000)|length }}", "{}", limits), ErrorCode::kLimitExceeded);
}

TEST(TemplateLimits, ErrorsNameTheLine) {
  EXPECT_EQ(rendered("\n\n{{ x.y }}"),
            "error: the chat template failed (line 3): 'x' is undefined");
  EXPECT_NE(rendered("\n\n{{ x").find("line 3"), std::string::npos);
  EXPECT_NE(rendered("{% if %}").find("line 1"), std::string::npos);
  EXPECT_NE(rendered("\n{% for x in y %}").find("Unexpected end of template"), std::string::npos);
  EXPECT_NE(rendered("{# a").find("Missing end of comment tag"), std::string::npos);
}

TEST(TemplateLimits, WhatIsLeftOutIsNamed) {
  for (const char* source :
       {"\n{{ 'a'|urlize }}", "\n{{ x|wordwrap(3) }}", "\n{% block a %}{% endblock %}",
        "\n{% autoescape true %}{% endautoescape %}"}) {
    EXPECT_EQ(code_of(source), ErrorCode::kUnsupported) << source;
    EXPECT_NE(rendered(source).find("line 2"), std::string::npos) << source;
  }
}

TEST(TemplateLimits, BadInput) {
  EXPECT_EQ(code_of("\xff"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of("x", "[]"), ErrorCode::kInvalidArgument);
  EXPECT_NE(code_of("x", "{"), ErrorCode::kOk);
  EXPECT_NE(code_of("x", R"({"a": "\ud800"})"), ErrorCode::kOk);
  EXPECT_EQ(rendered("{{ a }}", R"({"a": "\u0000\uffff"})"), std::string("\0\xEF\xBF\xBF", 4));
}

TEST(ChatTemplate, Variables) {
  const ChatTemplate chat(
      "{% set a = b %}{% for m in messages %}{{ m.c ~ loop.index ~ range(d) }}{% endfor %}"
      "{% macro f(x, y=z) %}{{ x ~ y ~ a ~ w }}{% endmacro %}{{ raise_exception }}");
  EXPECT_EQ(chat.variables(), (std::vector<std::string>{"b", "d", "messages", "w", "z"}));
}

TEST(ChatTemplate, ManyThreadsRenderOne) {
  const ChatTemplate chat("{% for i in range(100) %}{{ i * n }},{% endfor %}");
  const std::string expected = chat.render(R"({"n": 3})");
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&chat, &text] { text = chat.render(R"({"n": 3})"); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(text, expected);
  }
}

}  // namespace
}  // namespace headrace::text
