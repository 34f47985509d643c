"""Chat templates that ask for much in one operation, and a maker of random ones."""

from __future__ import annotations

import random

_TIMES = "{% for i in range(%d) %}"
_DOUBLED = "{% set n = namespace(x=%s) %}{% for i in range(40) %}{% set n.x = %s %}{% endfor %}"

# Each ends in an error.
ATTACKS = {
    "format width of a field": '{{ "{:{}}".format("a", "3999999999") }}',
    "format width": "{{ '{:9999999999}'.format(1) }}",
    "format many fields": "{{ ('{0}' * 100000).format('a' * 100000) }}",
    "format_map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "percent width": "{{ '%9999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (2000000000, 1) }}",
    "percent many fields": "{{ ('%(a)s' * 100000) % {'a': 'b' * 100000} }}",
    "format filter": "{{ '%9999999999d' | format(1) }}",
    "format filter many fields": "{{ ('%(a)s' * 100000) | format(a='b' * 100000) }}",
    "join over a generator": "{{ range(99999) | map('string') | join('a' * 100000) }}",
    "join filter": "{{ range(99999) | join('a' * 100000) }}",
    "str.join": "{{ ('a' * 100000).join(['b'] * 100000) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "replace filter": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "center filter": "{{ 'a' | center(10 ** 10) }}",
    "indent filter": "{{ 'a' | indent(10 ** 10, true) }}",
    "zfill": "{{ 'a'.encode().zfill(6000000000) }}",
    "bytes times": "{{ 'a'.encode() * 6000000000 }}",
    "to_bytes": "{{ (1).to_bytes(6000000000, 'big') }}",
    "str times": "{{ 'a' * 6000000000 }}",
    "list times": "{{ [1] * 6000000000 }}",
    "list of large strings": (
        "{% set n = namespace(x=[]) %}"
        + _TIMES.replace("%d", "999")
        + "{% set n.x = n.x + ['a' * (16000000 + i)] %}{% endfor %}"
    ),
    "doubled list as JSON": _DOUBLED.replace("%s", "[1]", 1).replace("%s", "[n.x, n.x]")
    + "{{ n.x | tojson }}",
    "doubled list as text": _DOUBLED.replace("%s", "[1]", 1).replace("%s", "[n.x, n.x]")
    + "{{ n.x }}",
    "doubled lists compared": (
        _DOUBLED.replace("%s", "[1]", 1).replace("%s", "[n.x, n.x]")
        + "{% set m = namespace(x=[1]) %}{% for i in range(40) %}{% set m.x = [m.x, m.x] %}"
        + "{% endfor %}{{ n.x == m.x }}"
    ),
    "doubled text": _DOUBLED.replace("%s", "'ab'", 1).replace("%s", "n.x ~ n.x"),
    "tojson indent": "{{ [1] | tojson(indent=9999999999) }}",
    "sum of lists": "{{ ([range(1000) | list] * 100000) | sum(start=[]) }}",
    "slice": "{{ [1] | slice(999999999) | list }}",
    "batch": "{{ [1] | batch(999999999, 1) | list }}",
    "int of base 16": "{{ ('f' * 30000000) | int(base=16) ** 9 }}",
    "power": "{{ (10 ** 4000) ** 400000 }}",
    "shift by power": "{{ 2 ** 9999999999 }}",
    "squares": "{% set n = namespace(x=3) %}{% for i in range(60) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
    "endless loops": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "endless filtered loop": "{% for i in range(99999) %}"
    "{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
    "endless calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) + f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(99) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "deep nesting": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "wide output": "{% for i in range(99999) %}" + "a" * 1000 + "{% endfor %}",
    "sort": "{{ (range(100000) | map('string') | list * 400) | sort | length }}",
    "strftime": "{{ strftime_now('%Y' * 9000000) | length }}{{ 1 // 0 }}",
}

# Each gives text or an error, soon.
COSTLY = {
    "round": "{{ 1 | round(10 ** 7) }}{{ 1.5 | round(-(10 ** 400)) }}",
    "wordwrap": "{{ ('a ' * 3000000) | wordwrap(1) }}",
    "wordwrap of a giant": "{{ ('a' * 10000000) | wordwrap(1) }}",
    "striptags": "{{ ('<a' * 1000000) | striptags }}",
    "urlize": "{{ ('http://a.b ' * 100000) | urlize }}",
    "title": "{{ ('ab-' * 1000000) | title }}",
    "xmlattr": "{{ {'a': 'b' * 10000000} | xmlattr }}",
    "unique": "{{ range(100000) | unique | list | length }}",
    "find": "{{ ('a' * 10000000).find('a' * 5000000 ~ 'b') }}",
    "reverse": "{{ ('a' * 10000000)[::-1] | length }}",
    "int of text": "{{ ('9' * 1000000) | int }}",
    "float of text": "{{ ('9' * 1000000) | float }}",
    "pprint": "{{ ([[1, 2]] * 100000) | pprint }}",
    "escape": "{{ ('<' * 10000000) | e | length }}",
    "filesizeformat": "{{ (10 ** 300) | filesizeformat }}",
    "many messages compiled": "{{ a }}" * 140000,
    "wide format": "{{ '%099999d' % 1 }}",
}

_PIECES = [
    "{{ ", " }}", "{% ", " %}", "for x in ", "messages", "if ", "endfor", "endif", "set x = ",
    "x", "|", "tojson", "(", ")", "[", "]", "'", "'a'", "1", "+", "~", "*", "**", ".", "role",
    "\n", "macro f(x)", "endmacro", "loop", "range(", "99999", "-", "#}", "{#", ",", "=", "not ",
    "call", "filter", "namespace(", "break", "format(", "join(", "list", "replace(", "center(",
    "9999999999", "'%s'", "'{}'", "encode()", "decode()", "split()", "string", "map(", "sum",
    "start=[]", "indent", "{% for i in range(99) %}{% set x = x ~ x %}{% endfor %}", "f(x)",
    "generation", "endgeneration", "strftime_now(", "raise_exception(", "items()", "==", "in ",
    "is defined", "else", "{{ x * 99999999 }}", "{{ [x] * 99999999 }}", "__class__", "dict(",
    "trim", "sort", "unique", "slice(", "batch(", "wordwrap(", "1.5", "none", "true", "\x00",
    "\ud800", "你",
]  # fmt: skip
_STATEMENTS = [
    "{{ @ }}", "{% if @ %}@@{% endif %}", "{% for x in @ %}@@{% endfor %}", "{% set y = @ %}",
    "{% macro f(x) %}@@{% endmacro %}{{ f(@) }}", "{% generation %}@@{% endgeneration %}", "text\n",
]  # fmt: skip
_EXPRESSIONS = [
    "messages", "x", "y", "1", "99999999", "'a'", "[x, x]", "{'a': x}", "(@ + @)", "(@ * @)",
    "(@ ~ @)", "(@ ** @)", "(@ % @)", "@ | tojson", "@ | join(@)", "@ | length", "@ | list",
    "@ | sum(start=@)", "@ | string", "@ | replace(@, @)", "@.role", "@[@]", "@[::-1]", "range(@)",
    "'{:{}}'.format(@, @)", "@ | center(@)", "@ == @", "@ in @", "@ | map('upper') | list",
    "namespace(a=@)", "@ if @ else @", "@.encode()", "@ | round(@)", "@ | int(base=16)", "f(@)",
    "@ | sort", "@ | wordwrap(@)", "@ | batch(@) | list", "@.split(@)", "@ // @", "@ | indent(@)",
]  # fmt: skip


def random_template(rng: random.Random) -> str:
    """Text in pieces, mostly malformed, or a well-formed program."""
    if rng.random() < 0.5:
        return "".join(rng.choices(_PIECES, k=rng.randrange(1, 25)))
    text = "@@" * rng.randrange(1, 4)
    for _ in range(rng.randrange(1, 30)):
        double, single = text.find("@@"), text.find("@")
        if single < 0:
            break
        if double == single:
            text = text[:double] + rng.choice(_STATEMENTS) + text[double + 2 :]
        else:
            text = text[:single] + rng.choice(_EXPRESSIONS) + text[single + 1 :]
    return text.replace("@@", "").replace("@", "x")
