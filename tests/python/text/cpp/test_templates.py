"""Chat templates render as jinja2 renders them in the environment that transformers sets up."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chat_templates
import jinja2
import pytest
import text_cases
from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace import _core
from headrace.text.templates.sandbox import GenerationTag

VARIABLES: dict[str, Any] = {
    "u": "héllo <b>",
    "n": None,
    "d": {"a": 1, "b": [1, 2], "items": 3, "K": "v"},
    "l": [3, 1, 2],
    "ms": [{"r": "u", "c": "X", "n": 2}, {"r": "a", "c": "y", "n": 1}, {"r": "u", "c": None}],
    "big": 12345678901234567890,
}

VALUES = (
    "none", "true", "false", "0", "1", "-3", "2.5", "-0.0", "1e20", "''", "'abc'", "'A b'", "u",
    "[]", "[1, 2]", "['b', 'a']", "(1, 2)", "()", "{}", "{'a': 1}", "d", "nope", "d.nokey",
    "('<x>'|safe)", "range(3)", "d.items()", "d.keys()", "ms", "'5'", "' x '", "[none, true]",
    "l|map('string')", "namespace(a=1)", "big",
)  # fmt: skip
OPERATORS = (
    "+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and",
    "or",
)  # fmt: skip
SUFFIXES = (
    "|abs", "|attr('a')", "|batch(2)|list", "|capitalize", "|center(9)", "|default('D')",
    "|default('D', true)", "|dictsort", "|e", "|first", "|float", "|forceescape", "|format(1)",
    "|groupby('r')", "|indent", "|indent(2, true)", "|int", "|int(7)", "|items|list", "|join",
    "|join('-')", "|join(', ', attribute='r')", "|last", "|length", "|list", "|lower",
    "|map('upper')|list", "|map(attribute='r')|list", "|map(attribute='r', default='q')|list",
    "|max", "|min", "|reject|list", "|replace('a', 'b')", "|replace('a', 'b', 1)", "|round",
    "|round(1)", "|round(-1)", "|round(1, 'ceil')", "|safe", "|select('string')|list",
    "|selectattr('r')|list", "|selectattr('r', 'equalto', 'u')|list", "|slice(2, 'z')|list",
    "|sort", "|sort(reverse=true)", "|sort(attribute='n')", "|string", "|sum",
    "|sum(attribute='n')", "|title", "|tojson", "|tojson(indent=2)", "|tojson(ensure_ascii=true)",
    "|tojson(separators=(',', ':'))", "|tojson(sort_keys=true)", "|trim", "|trim('a')",
    "|truncate(4)", "|truncate(3, true, '')", "|unique|list", "|upper", "|wordcount",
    " is boolean", " is callable", " is divisibleby(2)", " is eq(1)", " is escaped", " is even",
    " is float", " is ge(1)", " is in([1, 'abc', none])", " is integer", " is iterable",
    " is lower", " is mapping", " is number", " is odd", " is sameas(none)", " is sequence",
    " is string", " is upper", " is undefined", ".capitalize()", ".count('a')", ".endswith('c')",
    ".find('b')", ".format(1)", ".get('a')", ".items()", ".isdigit()", ".istitle()",
    ".join(['x', 'y'])", ".keys()", ".lstrip()", ".partition('b')", ".replace('a', 'zz')",
    ".rjust(6, '*')", ".rsplit('b', 1)", ".split()", ".split('b')", ".split('')",
    ".splitlines()", ".strip('ac')", ".swapcase()", ".title()", ".zfill(5)", ".append(1)",
    ".pop()", ".index(1)", ".x", ".a.b", ".__class__", "[0]", "[-1]", "[1:]", "[::-1]", "['a']",
    "['nokey']", "[none]", "['items']", "[::0]", "[1.0]", "()",
)  # fmt: skip
FORMS = (
    "{{ -@ }}", "{{ +@ }}", "{{ not @ }}", "{{ [@] }}", "{{ {'k': @}|tojson }}", "{{ {@: 1} }}",
    "{% for x in @ %}{{ x }},{{ loop.index }}{{ loop.last }};{% else %}E{% endfor %}",
    "{% for x, y in @ %}{{ x }}-{{ y }}{% endfor %}", "{{ dict(@) }}", "{{ range(@) }}",
    "{{ '%s' % @ }}", "{{ '%d' % @ }}", "{{ '%r|%5.1f' % (@, @) }}", "{{ '{} {!r}'.format(@, @) }}",
    "{{ '{:>6.2f}|'.format(@) }}", "{{ '{:,}|{:+d}|{:#x}'.format(@, @, @) }}",
)  # fmt: skip

# What prints an address in Python, needs more than 64 bits or is a set: an error here. So is a
# slice of a constant that has none, which is undefined where jinja2 computes it at compile time.
LEFT_OUT = re.compile(
    "64 bits|can't be printed|doesn't have|can't format|which keys\\(\\) and items\\(\\) are"
    "|unhashable type: 'slice'|object is not subscriptable"
)


def environment() -> ImmutableSandboxedEnvironment:
    def tojson(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    del made.globals["lipsum"]
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


JINJA = environment()


def of_jinja(template: str, variables: dict[str, Any]) -> str | None:
    """The text; None for any error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of the Python that jinja2 makes
        try:
            return JINJA.from_string(template).render(**variables)
        except Exception:
            return None


def of_ours(template: str, variables: dict[str, Any]) -> tuple[str | None, str]:
    """The text, or none and the error."""
    try:
        return _core.ChatTemplate(template).render(variables), ""
    except _core.HeadraceError as error:
        return None, str(error)


def check(template: str, variables: dict[str, Any]) -> None:
    expected = of_jinja(template, variables)
    rendered, error = of_ours(template, variables)
    if rendered is None and LEFT_OUT.search(error):
        return
    assert rendered == expected, f"{template!r} {error}"


def some(cases: list[str], few: int) -> Iterator[str]:
    """As many as every run can afford, or HEADRACE_TEXT_CASES, others in each version of Python."""
    rng = random.Random(few)
    return iter(rng.sample(cases, min(text_cases.CASES or few, len(cases))))


def test_operators() -> None:
    pairs = itertools.product(VALUES, OPERATORS, VALUES)
    for template in some([f"{{{{ {a} {o} {b} }}}}" for a, o, b in pairs], 150):
        check(template, VARIABLES)


def test_filters_tests_and_methods() -> None:
    pairs = itertools.product(VALUES, SUFFIXES)
    for template in some([f"{{{{ ({a}){suffix} }}}}" for a, suffix in pairs], 200):
        check(template, VARIABLES)


def test_other_forms() -> None:
    cases = [form.replace("@", value) for form, value in itertools.product(FORMS, VALUES)]
    for template in some(cases, 60):
        check(template, VARIABLES)


def test_whitespace() -> None:
    spaces = (
        "",
        " ",
        "\n",
        "\n  ",
        "a",
        "\r\n",
        "\r ",
        "\x0b\n",
        "\u3000",
        "{# c #}",
        "{#- c -#}\n",
    )
    tags = [
        begin + left + f" {word} " + right + end
        for begin, end, word in (("{%", "%}", "set q = 1"), ("{{", "}}", "u"), ("{#", "#}", "c"))
        for left in ("", "-", "+")
        for right in ("", "-", "+")
        if not (begin == "{{" and right == "+")
    ]
    grid = list(itertools.product(spaces, tags, spaces, tags, spaces))
    for parts in random.Random(1).sample(grid, text_cases.CASES or 100):
        check("".join(parts), VARIABLES)


class RandomTemplate:
    """A program of Jinja's, most of which make sense."""

    NAMES = ("u", "n", "d", "l", "ms", "x", "z", "loop.index", "x.r", "ms[0]", "d.b", "ns.a")
    FILTERS = (
        "upper",
        "length",
        "first",
        "join",
        "list",
        "string",
        "default('D')",
        "tojson",
        "sort",
    )

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.text = (
            "{% macro f(x) %}<{{ x }}>{% endmacro %}"
            "{% macro g(a, b) %}[{{ a }}{{ b }}{{ caller() if caller }}]{% endmacro %}"
            "{% set ns = namespace(a=0) %}" + self.body(3)
        )

    def expression(self, depth: int) -> str:
        rng = self.rng
        if depth == 0 or rng.random() < 0.25:
            return rng.choice((*self.NAMES, "1", "-2", "'a'", "[1, 2]", "true", "('t', 1)"))
        inner = [self.expression(depth - 1) for _ in range(3)]
        forms = (
            "{0} ~ {1}", "{0} == {1}", "{0} and {1}", "{0} or {1}", "{0} + {1}", "{0} in {1}",
            "({0})", "{0}|" + rng.choice(self.FILTERS), "{0} is not none", "{0} is string",
            "{0} if {1} else {2}", "not {0}", "[{0}, {1}]", "f({0})", "g({0}, b={1})", "{0}[1:]",
        )  # fmt: skip
        return rng.choice(forms).format(*inner)

    def tag(self, text: str) -> str:
        left, right = self.rng.choice(("", "", "-", "+")), self.rng.choice(("", "", "-", "+"))
        return f"{{%{left} {text} {right}%}}"

    def body(self, depth: int) -> str:
        spaces = ("", "\n", " \n  ", "  ", " a ", "b\n", "{# c #}", "{#- c -#}\n")
        count = self.rng.randrange(1, 4)
        parts = [self.statement(depth) + self.rng.choice(spaces) for _ in range(count)]
        return self.rng.choice(spaces) + "".join(parts)

    def statement(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.3:
            return "{{ " + self.expression(2) + " }}"
        inner, other = self.body(depth - 1), self.body(depth - 1)
        value = self.expression(2)
        tag = self.tag
        forms = (
            lambda: tag(f"if {value}") + inner + tag("else") + other + tag("endif"),
            lambda: tag("for x in ms") + inner + tag("else") + other + tag("endfor"),
            lambda: tag(f"for x in [1, 2, 3] if {value}") + inner + tag("endfor"),
            lambda: tag("for x, z in d.items()") + inner + tag("endfor"),
            lambda: tag(f"set x = {value}"),
            lambda: tag("set z") + inner + tag("endset"),
            lambda: tag(f"set ns.a = {value}"),
            lambda: tag(f"macro f(x, y={value})") + inner + tag("endmacro"),
            lambda: tag(f"call g({value})") + inner + tag("endcall"),
            lambda: tag("filter upper") + inner + tag("endfilter"),
            lambda: tag(f"with x = {value}") + inner + tag("endwith"),
            lambda: tag("for x in l") + tag(f"if {value}") + tag("break") + tag("endif") + inner
            + tag("endfor"),
            lambda: tag("generation") + inner + tag("endgeneration"),
        )  # fmt: skip
        return self.rng.choice(forms)()


def test_programs() -> None:
    for seed in range(text_cases.CASES or 40):
        template = RandomTemplate(seed).text
        check(template, VARIABLES)
        try:
            names = meta.find_undeclared_variables(JINJA.parse(template))
        except jinja2.TemplateSyntaxError:
            continue
        assert _core.ChatTemplate(template).variables() == sorted(names)


def check_conversations(template: str) -> None:
    for number, messages in enumerate(chat_templates.CONVERSATIONS):
        for tools in (None, chat_templates.TOOLS):
            variables = {
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": number % 2 == 0,
                "bos_token": "<s>",
                "eos_token": "</s>",
                "enable_thinking": number % 3 == 0,
                "date_string": "26 Jul 2024",
            }
            check(template, variables)


@pytest.mark.parametrize("family", sorted(chat_templates.FAMILIES))
def test_families(family: str) -> None:
    check_conversations(chat_templates.FAMILIES[family])


@pytest.mark.skipif("HEADRACE_TEMPLATES" not in os.environ, reason="a folder of templates")
def test_templates_of_a_folder() -> None:
    paths = sorted(Path(os.environ["HEADRACE_TEMPLATES"]).rglob("*.jinja"))
    assert paths
    for path in paths:
        check_conversations(path.read_text(encoding="utf-8"))
