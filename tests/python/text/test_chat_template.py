"""Chat templates: choice, variables, sandbox and bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import TemplateError
from headrace.text.templates.chat_template import (
    RESERVED_VARIABLES,
    checked_variables,
    find_template,
    load_chat_template,
    render_template,
)

MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "<hi> & 你好"},
    {"role": "assistant", "content": "Hello"},
]


def render(template: str, **variables: Any) -> str:
    return render_template(template, variables)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[1].content }}", "<hi> & 你好"),
        ("{% for m in messages %}{{ loop.index }}{{ m.role[0] }}{% endfor %}", "1s2u3a"),
        (
            "{% for m in messages %}{{ loop.last }},{{ loop.length }};{% endfor %}",
            "False,3;" * 2 + "True,3;",
        ),
        (
            "{% for m in messages if m.role != 'user' %}{{ m.role }} {% endfor %}",
            "system assistant ",
        ),
        (
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}"
            "{{ m.role }}{% break %}{% endfor %}",
            "user",
        ),
        ("{{ messages[0] | tojson }}", '{"role": "system", "content": "Be kind."}'),
        ("{{ {'b': '<你>', 'a': 1} | tojson(sort_keys=true) }}", '{"a": 1, "b": "<你>"}'),
        ("{{ {'a': [1]} | tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{% generation %}{{ messages[2].content }}{% endgeneration %}", "Hello"),
        (
            "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}"
            "{%- set ns.n = ns.n + 1 -%}{%- endfor -%}{{ ns.n }}",
            "3",
        ),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) ~ f('a') }}", "[1][a]"),
        ("  {% if true %}\nline\n{% endif %}\n", "line\n"),
        ("{{ 'a,b'.split(',') | join('-') | upper }}{{ '%s' | format(3) }}{{ '%d' % 4 }}", "A-B34"),
        (
            "{{ '{}:{x}'.format(1, x=2) }}{{ 'ab'.replace('a', 'c') }}{{ 'x'.ljust(3) }}|",
            "1:2cbx  |",
        ),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ [1, 2] + [3] }}{{ 2 ** 8 }}{{ 3 * 'ab' }}{{ 7 % 4 }}", "[1, 2, 3]256ababab3"),
        ("{{ missing is defined }}{{ missing }}", "False"),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{% set x %}{{ 1 }}{{ 2 }}{% endset %}{{ x }}{% set a, b = 3, 4 %}{{ a }}{{ b }}", "1234"),
    ],
)
def test_renders(template: str, expected: str) -> None:
    assert render(template, messages=MESSAGES) == expected


def test_strftime_now() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "^roles must alternate$"),
        ("{% if %}", r"line 1"),
        ("\n\n{{ x", r"line 3"),
        ("{{ a.b.c }}", "'a' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ().__class__.__bases__ }}", "unsafe"),
        ("{{ messages.__init__.__globals__ }}", "unsafe"),
        ("{{ lipsum.__globals__ }}", "undefined"),
        ("{% include 'x' %}", "the chat template failed"),
        ("{% import 'os' as os %}", "the chat template failed"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses too deeply"),
    ],
)
def test_fails(template: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(template, messages=[])


def test_a_template_has_a_largest_size() -> None:
    with pytest.raises(TemplateError, match="more than the 1048576 bytes allowed"):
        render("a" * ((1 << 20) + 1))


def test_the_messages_stay_unchanged() -> None:
    messages = json.loads(json.dumps(MESSAGES))
    with pytest.raises(TemplateError):
        render("{{ messages[0].update({'role': 'x'}) }}", messages=messages)
    with pytest.raises(TemplateError):
        render("{% set messages[0].role = 'x' %}", messages=messages)
    assert messages == MESSAGES


def test_which_template() -> None:
    templates = {"default": "D", "tool_use": "T"}
    assert find_template(templates, None, with_tools=False) == "D"
    assert find_template(templates, None, with_tools=True) == "T"
    assert find_template({"default": "D"}, None, with_tools=True) == "D"
    assert find_template(templates, "tool_use", with_tools=False) == "T"
    assert find_template(templates, "{{ 1 }}", with_tools=False) == "{{ 1 }}"
    with pytest.raises(TemplateError, match=r"^This model does not support chat_template\.$"):
        find_template({}, None, with_tools=False)
    with pytest.raises(TemplateError, match="choose one of: rag"):
        find_template({"rag": "R"}, None, with_tools=False)


def test_loading(tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text("{{ 你 }}", encoding="utf-8")
    assert load_chat_template(None) is None
    assert load_chat_template(str(path)) == "{{ 你 }}"
    assert load_chat_template("{{ x }}") == "{{ x }}"
    assert load_chat_template("two\nlines") == "two\nlines"
    with pytest.raises(
        ValueError, match=r"The supplied chat template \(no/such\) looks like a file"
    ):
        load_chat_template("no/such")


def test_variables() -> None:
    assert checked_variables(None) == {"enable_thinking": True}
    given_kwargs = {"enable_thinking": False, "custom": [1]}
    assert checked_variables(given_kwargs) == given_kwargs
    with pytest.raises(ValueError, match="chat_template_kwargs must be a dict"):
        checked_variables([("a", 1)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'not a name' is not a variable name"):
        checked_variables({"not a name": 1})


@pytest.mark.parametrize("name", sorted(RESERVED_VARIABLES))
def test_reserved_variables(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is set by the engine"):
        checked_variables({name: 1})
