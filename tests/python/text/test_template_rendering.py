"""What chat templates give through Python, and what they can't take or hold up."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import jinja2
import pytest
from hostile_templates import ATTACKS, COSTLY, random_template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from small_process import in_a_small_process

from headrace.errors import TemplateError
from headrace.text.templates import chat_template, process
from headrace.text.templates.chat_template import render_template, template_variables
from headrace.text.templates.sandbox import GenerationTag

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "<hi> & 你好"},
    {
        "role": "assistant",
        "content": "<think>\nHm\n</think>\n\nHello",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, None, 2.5, "é"]}}}],
    },
    {"role": "tool", "content": "42"},
    {"role": "user", "content": "Go on"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

# What published templates are made of: each line is a habit of at least one family.
HABITS = [
    # ChatML with tools, as Qwen
    "{%- if tools %}\n{{- '<|im_start|>system\\n' }}\n{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content + '\\n\\n' }}{%- endif %}{%- for tool in tools %}{{- '\\n' }}"
    "{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}",
    "{%- set ns = namespace(multi=true, last=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.multi and message.role == 'user' and message.content is string and not("
    "message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}"
    "{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}",
    "{%- for m in messages if '</think>' in m.content %}"
    "{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}"
    "{%- endfor %}",
    # Dates and exceptions, as Llama 3
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}{%- endif %}{{ date_string }}",
    "{{ tools | tojson(indent=4) }}{{ {'b': 1, 'a': '<'} | tojson(sort_keys=true) }}",
    "{%- set loop_messages = messages[1:] %}{%- set system = messages[0]['content'] | trim %}"
    "{%- for m in loop_messages %}{{ '<' ~ m['role'] ~ '>' ~ m['content'] | trim }}{% endfor %}",
    # Alternation, as Mistral and Gemma
    "{%- for m in messages | selectattr('role', 'in', ['user', 'assistant']) %}"
    "{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{%- endif %}{{ m.role }}{%- endfor %}",
    "{{ bos_token }}{% set role = 'model' if messages[2].role == 'assistant' else 'user' %}"
    "{{ role }}",
    # Macros, calls, filters, tests
    "{% macro show(m, tag='x') -%}\n  <{{ tag }}>{{ m.content }}\n{%- endmacro %}"
    "{% for m in messages %}{{ show(m, tag=m.role) }}{% endfor %}",
    "{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}in{% endcall %}",
    "{% generation %}{% set inner = 1 %}{{ messages[2].content }}{% endgeneration %}"
    "{{ inner is defined }}",
    "{%- for key, value in messages[2].tool_calls[0].function.arguments.items() %}"
    "{{ key }}={{ value if value is string else value | tojson }}{%- endfor %}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | length }}{{ -1 | abs }}",
    "{{ messages | groupby('role') | map('first') | list }}{{ messages | last }}"
    "{{ none }}{{ 1.0 }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index == 3 %}{% break %}{% endif %}{{ loop.last }}{% endfor %}",
    "{% filter upper %}{{ messages[0].content }}{% endfilter %}{{ 'a\\nb' | indent(2, true) }}",
    "{{ '%s-%d' % ('a', 3) }}{{ '{}:{x}'.format(1, x=2) }}{{ 'ab' * 3 }}{{ 7 // 2 }}{{ 2 ** 8 }}",
    "{{ messages[9] is defined }}{{ missing }}{{ missing | default('d') }}"
    "{{ dict(a=1) }}{{ (1, 2) }}",
    "  {%- if true %}\n line\n  {% endif %}\n{# note #}\n end\n",
    "{{ raise_exception('no') }}",
    "{{ messages.append(1) }}",
    "{{ a.b.c }}",
    "{% if %}",
]  # fmt: skip


def as_transformers_does(template: str, variables: dict[str, Any]) -> str | Exception:
    """The text or the error. Without limits: for templates that need none."""

    def tojson(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(template).render(**variables)
    except jinja2.TemplateError as error:
        return error


@pytest.mark.parametrize("template", HABITS)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_gives_what_transformers_gives(template: str, tools: Any) -> None:
    variables = {"messages": MESSAGES, "tools": tools, "bos_token": "<s>"}
    expected = as_transformers_does(template, variables)
    try:
        rendered: object = render_template(template, variables)
    except TemplateError as error:
        rendered = error
    if isinstance(expected, Exception):
        assert isinstance(rendered, TemplateError)
        assert str(expected)[:190] in str(rendered)
    else:
        assert rendered == expected


@pytest.fixture
def no_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the package isn't installed."""
    monkeypatch.setattr(chat_template, "find_spec", lambda name: None)


def test_attacks_end_in_errors() -> None:
    """All of them under 512 MB, with nobody to fall back on."""
    code = """
import json, time
from hostile_templates import ATTACKS, COSTLY
from headrace.errors import TemplateError
from headrace.text.templates import chat_template
from headrace.text.templates.chat_template import render_template

chat_template.find_spec = lambda name: None
seen = {}
for name, template in {**ATTACKS, **COSTLY}.items():
    start = time.process_time()
    try:
        text = render_template(template, {"messages": []})
        assert len(text) <= 1 << 24
        error = None
    except TemplateError as failure:
        error = str(failure)
    seen[name] = [time.process_time() - start, error]
assert render_template("{{ 1 + 1 }}", {}) == "2"
print(json.dumps(seen))
"""
    seen = json.loads(in_a_small_process(code))
    assert set(seen) == {*ATTACKS, *COSTLY}
    for name, (seconds, error) in seen.items():
        assert seconds < 10, name
        if name in ATTACKS:
            assert error is not None, name
        assert error is None or ("chat template" in error and len(error) < 400), name


def test_a_hostile_template_holds_no_other_thread_up() -> None:
    def shares() -> float:
        """How much of the time of a long rendering this thread has waited for a turn at most."""
        ended: list[float] = []

        def work() -> None:
            with contextlib.suppress(TemplateError):
                render_template(ATTACKS["doubled list as text"], {})
            ended.append(time.monotonic())

        thread = threading.Thread(target=work)
        begin = last = time.monotonic()
        thread.start()
        longest = 0.0
        while not ended:
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        thread.join()
        return max(longest, ended[0] - last) / (ended[0] - begin)

    # With the interpreter's lock held it would be nearly 1, each time.
    assert any(shares() < 0.5 for _ in range(5))


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    process._pool.close()
    monkeypatch.setattr(process._pool, "work", replace(process._pool.work, cpu_seconds=0.1))
    yield
    process._pool.close()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.randoms(use_true_random=False))
def test_any_template_renders_or_fails_cleanly(little_time: None, rng: Any) -> None:
    with contextlib.suppress(TemplateError):
        assert isinstance(render_template(random_template(rng), {"messages": MESSAGES}), str)


def show(value: Any) -> str:
    """A rendering of a variable in which any change of it would show."""
    return render_template("{{ x }}|{{ x | tojson }}", {"x": value})


class Role(str, enum.Enum):
    USER = "user"


class TestVariables:
    """They reach the template as they are, or not at all."""

    @pytest.mark.parametrize(
        "value",
        [
            None, True, 0, -(2**63), 2**63, 10**50, 1.0, -0.0, 1e300, "", "'\"\x00\x7f\n", "你😀",
            [], {}, (), (1,), [(1, "a"), [None]], {1: "i", "1": "s"}, {True: 1, None: 2, 1.5: 3},
            {"a": {"b": ({}, [[]])}}, "a\ud800", {"\udfff": "\ud83d"}, list(range(1000)),
            {str(i): i for i in range(1000)},
        ],
    )  # fmt: skip
    def test_plain_data(self, value: Any, no_jinja: None) -> None:
        assert show(value) == f"{value}|{json.dumps(value, ensure_ascii=False)}"

    def test_infinity_and_parts_of_surrogate_pairs(self, no_jinja: None) -> None:
        assert show(float("inf")) == "inf|Infinity"
        assert render_template("{{ a ~ b }}", {"a": "\ud83d", "b": "\ude00"}) == "\ud83d\ude00"

    @pytest.mark.parametrize(
        "value",
        [
            {3}, b"x", datetime.date(2020, 1, 2), OrderedDict(a=1), float("nan"), [{2**70: 1}],
            {(1, 2): 3}, range(3),
        ],
    )  # fmt: skip
    def test_other_data_goes_to_jinja2(self, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        assert render_template("{{ x }}", {"x": value}) == str(value)
        monkeypatch.setattr(chat_template, "find_spec", lambda name: None)
        with pytest.raises(
            TemplateError, match=r"'x' is not plain data: .*pip install 'headrace\[jinja2\]'"
        ):
            render_template("{{ x }}", {"x": value})

    def test_what_cannot_be_sent_is_named(self) -> None:
        with pytest.raises(TemplateError, match=r"'now' .* is not plain data"):
            render_template("{{ now() }}", {"fine": 1, "now": lambda: 1})

    def test_a_str_that_is_more_than_one_is_none_to_us(self, no_jinja: None) -> None:
        with pytest.raises(TemplateError, match="'x' is not plain data: it has a Role"):
            render_template("{{ x }}", {"x": [Role.USER]})
        with pytest.raises(TemplateError, match="the name of a template variable is a Role"):
            render_template("{{ user }}", {Role.USER: 1})

    def test_they_have_a_largest_size(self) -> None:
        with pytest.raises(TemplateError, match="more than the 16777216 bytes allowed"):
            render_template("x", {"messages": ["a" * (1 << 20), "b" * (1 << 24)]})

    def test_they_have_a_largest_depth(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        for value in (endless, {"a": endless}, (endless,)):
            with pytest.raises(TemplateError, match="nested too deeply: more than 100 levels"):
                render_template("x", {"x": value})


class TestWhereJinja2Helps:
    TEMPLATES = (
        ("{{ [1] | pprint }}", "[1]"),  # known when it is compiled
        ("{{ 2 ** n }}", str(2**70)),  # when it runs
        ("{{ ({'a': 1, 'b': 2}.keys() - ['a']) | list }}", "['b']"),
    )

    @pytest.mark.parametrize(("template", "expected"), TEMPLATES)
    def test_it_renders(self, template: str, expected: str) -> None:
        assert render_template(template, {"n": 70}) == expected

    @pytest.mark.parametrize(("template", "expected"), TEMPLATES)
    def test_it_is_named_where_it_is_missing(
        self, template: str, expected: str, no_jinja: None
    ) -> None:
        with pytest.raises(
            TemplateError,
            match=r"what Headrace doesn't have \(line 1\): .*pip install 'headrace\[jinja2\]'",
        ):
            render_template(template, {"n": 70})

    def test_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        template = "{{ [a] | pprint }}{{ b }}"
        assert template_variables(template) == {"a", "b"}
        monkeypatch.setattr(chat_template, "find_spec", lambda name: None)
        with pytest.raises(TemplateError, match="the filter 'pprint'"):
            template_variables(template)

    def test_nothing_else_needs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: object) -> NoReturn:
            raise AssertionError

        monkeypatch.setattr(process, "_answer", fail)
        variables = {"messages": MESSAGES, "tools": TOOLS}
        for template in HABITS:
            if "groupby" in template or "%d %b" in template:
                continue
            with contextlib.suppress(TemplateError):
                render_template(template, variables)
            with contextlib.suppress(TemplateError):
                template_variables(template)


class TestCompiledTemplates:
    def test_are_kept(self) -> None:
        template = "{{ 1 }}, kept"
        render_template(template, {})
        hits = chat_template._kept.cache_info().hits
        assert render_template(template, {}) == "1, kept"
        assert template_variables(template) == frozenset()
        assert chat_template._kept.cache_info().hits == hits + 2

    def test_only_so_many_and_no_large_ones(self) -> None:
        most = chat_template._kept.cache_info().maxsize
        assert most is not None
        for number in range(most + 3):
            assert render_template(f"{{{{ {number} }}}}", {}) == str(number)
        assert render_template("{{ 0 }}", {}) == "0"
        assert chat_template._kept.cache_info().currsize == most
        known = chat_template._kept.cache_info()
        large = "{{ 7 }}" + " " * chat_template._KEPT_CHARS + "|"
        assert render_template(large, {}).strip(" |") == "7"
        assert chat_template._kept.cache_info() == known

    def test_serve_threads_at_once(self) -> None:
        template = "{% for m in messages %}{{ m.role }}{{ me }}{% endfor %}"
        answers: dict[int, set[str]] = {}

        def work(me: int) -> None:
            variables = {"me": me, "messages": MESSAGES}
            answers[me] = {render_template(template, variables) for _ in range(50)}

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for me in range(8):
            assert answers[me] == {"".join(f"{m['role']}{me}" for m in MESSAGES)}


def test_a_template_is_utf8() -> None:
    with pytest.raises(TemplateError, match="a lone surrogate at character 1"):
        render_template("a\ud800", {})
