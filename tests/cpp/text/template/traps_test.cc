// Where Jinja surprises: a test for each habit that templates rely on, or trip over.

#include "cpp/text/template/rendered.h"

namespace headrace::text {
namespace {

TEST(TemplateTraps, Whitespace) {
  EXPECT_EQ(rendered("  {% if true %}\nline\n{% endif %}\n"), "line\n");
  EXPECT_EQ(rendered("a \n {%- if true -%} \n b {%+ endif %}"), "ab ");
  EXPECT_EQ(rendered("x\r\ny\rz\n"), "x\ny\nz");
  EXPECT_EQ(rendered("{{ 'a\r\nb' }}\n\n"), "a\nb\n");
  EXPECT_EQ(rendered(" {# no #}\nb {% raw %}{{ x }}{% endraw %}"), "b {{ x }}");
  EXPECT_EQ(rendered("{{ '<' }}"), "<");
}

TEST(TemplateTraps, Undefined) {
  EXPECT_EQ(value_of("x"), "");
  EXPECT_EQ(value_of("x|length ~ (x == y) ~ (x|upper)"), "0True");
  EXPECT_EQ(rendered("{% for a in x %}{{ a }}{% else %}none{% endfor %}"), "none");
  for (const char* bad : {"x.y", "x + 1", "x()", "x|int", "x|tojson", "x in 'a'"}) {
    EXPECT_TRUE(fails(bad)) << bad;
  }
  EXPECT_EQ(value_of("m.nokey ~ none.x ~ 'a'.b", R"({"m": {}})"), "");
  EXPECT_EQ(value_of("a.b.c", R"({"a": {}})"),
            "error: the chat template failed (line 1): 'dict object' has no attribute 'b'");
  EXPECT_TRUE(fails("none|length"));
  EXPECT_EQ(value_of("none|trim"), "None");
}

TEST(TemplateTraps, MethodBeforeKey) {
  const char* const variables = R"({"d": {"items": 1, "a": 2}})";
  EXPECT_EQ(value_of("d.items()|list", variables), "[('items', 1), ('a', 2)]");
  EXPECT_EQ(value_of("d['items']", variables), "1");
  EXPECT_TRUE(fails("d.items", variables));
}

TEST(TemplateTraps, Precedence) {
  EXPECT_TRUE(fails("1 + 2 ~ 3"));
  EXPECT_EQ(value_of("'a' + 'b' ~ 'c' * 2"), "abcc");
  EXPECT_EQ(value_of("2**3**2"), "64");
  EXPECT_EQ(value_of("-2**2"), "4");
  EXPECT_EQ(value_of("-1|abs"), "1");
  EXPECT_EQ(value_of("1 + '2'|int"), "3");
  EXPECT_EQ(value_of("1 < 2 == true"), "False");
}

TEST(TemplateTraps, Default) {
  EXPECT_EQ(value_of("x|default('d') ~ none|default('d') ~ none|default('d', true) ~ ''|d('e', 1)"),
            "dNonede");
}

TEST(TemplateTraps, Json) {
  EXPECT_EQ(value_of(R"({'b': [1, 2.0, none], 'a': '<é\x7f"'}|tojson)"),
            "{\"b\": [1, 2.0, null], \"a\": \"<é\x7f\\\"\"}");
  EXPECT_EQ(value_of("{'a': [1, {}]}|tojson(indent=2)"), "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
  EXPECT_EQ(value_of("'é😀'|tojson(ensure_ascii=true)"), R"("\u00e9\ud83d\ude00")");
  EXPECT_EQ(value_of("{'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':'))"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(value_of("{1: 'a', true: 'b'}|tojson"), R"({"1": "b"})");
  EXPECT_TRUE(fails("x|tojson"));
}

TEST(TemplateTraps, TextOfValues) {
  EXPECT_EQ(value_of("[true, none, 1.0, 1e20, 1e16, 1e-5, 0.1 + 0.2, 1e999]"),
            "[True, None, 1.0, 1e+20, 1e+16, 1e-05, 0.30000000000000004, inf]");
  EXPECT_EQ(value_of(R"(["a'b", 'a"b', 'a\nb', ('a',), {'k': 'é'}])"),
            R"(["a'b", 'a"b', 'a\nb', ('a',), {'k': 'é'}])");
}

TEST(TemplateTraps, Numbers) {
  EXPECT_EQ(value_of("[7 / 2, -7 // 2, -7 % 3, 7.5 // -2, -7.5 % 2, 2 ** -1]"),
            "[3.5, -4, 2, -4.0, 0.5, 0.5]");
  EXPECT_TRUE(fails("10**20"));
  EXPECT_TRUE(fails("1 / 0"));
}

TEST(TemplateTraps, BigIntegersKeepTheirDigits) {
  const char* const variables = R"({"n": 9223372036854775808, "m": [-12345678901234567890]})";
  EXPECT_EQ(value_of("n ~ m|tojson ~ (n is integer)", variables),
            "9223372036854775808[-12345678901234567890]True");
  EXPECT_EQ(value_of("123456789012345678901"), "123456789012345678901");
  EXPECT_TRUE(fails("n + 1", variables));
}

TEST(TemplateTraps, Comparisons) {
  EXPECT_EQ(value_of("[true == 1 == 1.0, '1' != 1, (1, 2) != [1, 2], 2 in [1, 2.0]]"),
            "[True, True, True, True]");
  EXPECT_TRUE(fails("1 in 'a'"));
  EXPECT_TRUE(fails("1 < 'a'"));
}

TEST(TemplateTraps, TextsAreCharacters) {
  EXPECT_EQ(value_of("'héllo'[1] ~ 'héllo'|length ~ 'héllo'[-2:] ~ 'héllo'[::-2]"), "é5loolh");
  EXPECT_EQ(value_of("'héllo'[9]"), "");
}

TEST(TemplateTraps, StripAndSplit) {
  EXPECT_EQ(value_of("'\\u00a0a\\u3000'.strip() ~ 'abxba'.strip('ab')"), "ax");
  EXPECT_EQ(value_of("[' a  b '.split(), ' a '.split(' '), 'a-b-c'.split('-', 1), "
                     "'a-b-c'.rsplit('-', 1)]"),
            "[['a', 'b'], ['', 'a', ''], ['a', 'b-c'], ['a-b', 'c']]");
  EXPECT_TRUE(fails("'a'.split('')"));
}

TEST(TemplateTraps, Markup) {
  EXPECT_EQ(value_of("('<'|safe) + '<'"), "<&lt;");
  EXPECT_EQ(value_of("'<' + ('<'|safe)"), "&lt;<");
  EXPECT_EQ(value_of("('<'|safe|upper) + '<' ~ (('<'|safe) ~ '<')"), "<&lt;&lt;&lt;");
  EXPECT_EQ(value_of("'<'|e|e"), "&lt;");
}

TEST(TemplateTraps, Scopes) {
  EXPECT_EQ(rendered("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}"),
            "21");
  EXPECT_EQ(rendered("{% if true %}{% set x = 3 %}{% endif %}{{ x }}"), "3");
  EXPECT_EQ(rendered("{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}"),
            "2");
  EXPECT_EQ(rendered("{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}"
                     "{% endfor %}{{ n.a }}"),
            "4");
  EXPECT_TRUE(rendered("{% set d = {} %}{% set d.a = 1 %}").starts_with("error: "));
}

TEST(TemplateTraps, Loops) {
  EXPECT_EQ(rendered("{% for x in 'abc' if x != 'b' %}{{ loop.index }}/{{ loop.length }}"
                     "{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}"),
            "1/21c;2/20a;");
  EXPECT_EQ(rendered("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}"
                     "{{ loop.cycle('o', 'e') }}{% endfor %}{{ loop }}"),
            "1o3o");
  EXPECT_EQ(rendered("{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else loop(x) }}"
                     "{{ loop.depth }}{% endfor %}"),
            "11223321");
}

TEST(TemplateTraps, Macros) {
  EXPECT_EQ(rendered("{% macro f(a, b='B') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
                     "{{ f() }}{{ f(1, 2, 3, c=4) }}"),
            "B(){}12(3,){'c': 4}");
  EXPECT_EQ(rendered("{% macro w() %}[{{ caller(1) }}]{% endmacro %}{% call(x) w() %}{{ x }}"
                     "{% endcall %}{% filter upper %}a{% endfilter %}"),
            "[1]A");
}

TEST(TemplateTraps, GenerationBlocksAreFound) {
  const ChatTemplate chat("a{% generation %}é{% set x = 1 %}{% endgeneration %}{{ x }}b");
  std::vector<TemplateSpan> generated;
  EXPECT_EQ(chat.render("{}", {{}, &generated}), "aéb");
  ASSERT_EQ(generated.size(), 1u);
  EXPECT_EQ(generated[0].begin, 1u);
  EXPECT_EQ(generated[0].end, 3u);
}

TEST(TemplateTraps, Sandbox) {
  for (const char* bad : {"[].append(1)", "{}.update({})", "{}.pop(1)", "''.__class__.__mro__",
                          "range(100001)", "lipsum.x"}) {
    EXPECT_TRUE(fails(bad)) << bad;
  }
  EXPECT_EQ(value_of("'%s-%03d' % ('a', 7) ~ '{}:{x:>3}'.format(1, x=2)"), "a-0071:  2");
  EXPECT_TRUE(fails("'{0.__class__.__mro__}'.format(1)"));
}

TEST(TemplateTraps, SortingAndChoosing) {
  EXPECT_EQ(value_of("['b', 'A', 'a', 'B']|sort"), "['A', 'a', 'b', 'B']");
  EXPECT_EQ(value_of("['b', 'A']|sort(case_sensitive=true, reverse=true)"), "['b', 'A']");
  EXPECT_TRUE(fails("[1, 'a']|sort"));
  const char* const variables = R"({"m": [{"r": "u", "n": 1}, {"r": "a"}]})";
  EXPECT_EQ(value_of("m|selectattr('r', 'equalto', 'u')|list", variables), "[{'r': 'u', 'n': 1}]");
  EXPECT_EQ(
      value_of("m|map(attribute='n', default=0)|list ~ m|selectattr('n')|list|length", variables),
      "[1, 0]1");
  EXPECT_TRUE(fails("m|map(attribute='r')", variables));
}

TEST(TemplateTraps, CaseAndIndent) {
  EXPECT_EQ(value_of("'hELLO wORLD'|capitalize ~ 'a-b c'|title ~ 'ß'.upper()"),
            "Hello worldA-B CSS");
  EXPECT_EQ(value_of("'a\\n\\nb'|indent(2)"), "a\n\n  b");
  EXPECT_EQ(value_of("'abcdef'|truncate(4) ~ 'a b c d e f g h'|truncate(8)"), "abcdefa b...");
  EXPECT_EQ(value_of("[2.5|round, 3.5|round, 2.675|round(2), 25|round(-1)]"),
            "[2.0, 4.0, 2.67, 20]");
}

TEST(TemplateTraps, Literals) {
  EXPECT_EQ(value_of(R"('\x41\u00e9\q' "b" 'c')"), "Aé\\qbc");
  EXPECT_EQ(value_of("[1_000, 0x10, 1e3]"), "[1000, 16, 1000.0]");
  EXPECT_TRUE(fails(".5"));
}

TEST(TemplateTraps, UnknownFilters) {
  EXPECT_TRUE(rendered("{{ 1|nofilter }}").starts_with("error: "));
  EXPECT_EQ(rendered("{% if false %}{{ 1|nofilter }}{% endif %}"), "");
  EXPECT_TRUE(rendered("{% if true %}{{ 1|nofilter }}{% endif %}").starts_with("error: "));
  EXPECT_EQ(rendered("{{ 1 if true else 1|nofilter }}"), "1");
}

TEST(TemplateTraps, Dicts) {
  EXPECT_EQ(value_of("{'a': 1, 'b': 2, 'a': 3}"), "{'a': 3, 'b': 2}");
  EXPECT_EQ(value_of("d|items|list ~ d.keys()|list ~ d.get('x', 'y') ~ d.values()|join('-')",
                     R"({"d": {"a": 1, "b": 2}})"),
            "[('a', 1), ('b', 2)]['a', 'b']y1-2");
  EXPECT_EQ(value_of("[]|first ~ ''|last"), "");
}

TEST(TemplateTraps, RaisingAndTime) {
  EXPECT_EQ(value_of("raise_exception('roles must alternate')"), "error: roles must alternate");
  const ChatTemplate chat("{{ strftime_now('%Y %b') }}");
  RenderOptions options;
  options.clock = [] { return std::chrono::system_clock::from_time_t(1'700'000'000); };
  EXPECT_EQ(chat.render("{}", options), "2023 Nov");
}

}  // namespace
}  // namespace headrace::text
