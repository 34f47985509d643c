"""The sandbox chat templates run in: Jinja's immutable one, with bounds.

A template comes with a checkpoint, so it is data, not code to trust. It can't reach Python
internals or change the messages. Loops, calls and growing values are counted, so that a template
that loops without end or builds huge strings ends in a TemplateError instead of eating the
machine: at most MAX_OUTPUT_CHARS of text, MAX_ITEMS elements in a list, MAX_SECONDS of time. The
bounds are checked between operations; a single operation on deeply nested data can still take long.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, cast

from jinja2 import Template, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace.errors import TemplateError

MAX_OUTPUT_CHARS = 1 << 24
MAX_ITEMS = 1 << 20
MAX_INT_BITS = 1 << 16
MAX_SECONDS = 10.0

_WIDE_FORMAT = re.compile(r"\d{6}|\*")
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


class _Budget:
    """The time one rendering has left."""

    __slots__ = ("_deadline", "_ticks")

    def __init__(self) -> None:
        self._deadline = time.monotonic() + MAX_SECONDS
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks & 0xFF == 0 and time.monotonic() > self._deadline:
            raise TemplateError(f"the chat template took more than {MAX_SECONDS:g} s")


_budget: ContextVar[_Budget] = ContextVar("headrace_template_budget")


def render(template: Template, variables: dict[str, Any]) -> str:
    """Renders within the bounds."""
    token = _budget.set(_Budget())
    try:
        return bounded_concat(template.generate(variables))
    finally:
        _budget.reset(token)


def bounded_concat(parts: Iterable[str]) -> str:
    kept, size = [], 0
    for part in parts:
        size += len(part)
        _check_chars(size)
        kept.append(part)
    return "".join(kept)


def _check_chars(count: int) -> None:
    if count > MAX_OUTPUT_CHARS:
        raise TemplateError(f"the chat template builds more than {MAX_OUTPUT_CHARS} characters")


def _check_items(count: int) -> None:
    if count > MAX_ITEMS:
        raise TemplateError(f"the chat template builds a list of more than {MAX_ITEMS} elements")


class _Counted:
    """An iterable whose every element is counted."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        tick = _budget.get().tick
        for item in self._inner:
            tick()
            yield item

    def __len__(self) -> int:
        return len(self._inner)


class GenerationTag(Extension):
    """{% generation %} ... {% endgeneration %}: training marks; the body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it as an instance variable)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment templates are compiled in. Whitespace control as in transformers."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(bounded_concat)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
        )
        del self.globals["lipsum"]
        self.filters["_counted"] = _Counted
        self.filters["_bounded"] = _bounded_text
        for name, check in _FILTER_CHECKS.items():
            self.filters[name] = _checked_filter(self.filters[name], check)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        for loop in source.find_all(nodes.For):
            loop.iter = _filtered(cast(nodes.Expr, loop.iter), "_counted")
        for parent in list(source.find_all(nodes.Node)):
            for name, value in list(parent.iter_fields()):
                if isinstance(value, nodes.Concat):
                    setattr(parent, name, _filtered(value, "_bounded"))
        return super()._generate(source, *args, **kwargs)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _budget.get().tick()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_str_method(owner, getattr(method, "__name__", ""), (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _bounded_text(text: str) -> str:
    _check_chars(len(text))
    return text


def _check_binop(operator: str, left: Any, right: Any) -> None:
    if operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            _check_chars(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            _check_items(len(left) + len(right))
    elif operator == "*":
        for one, other in ((left, right), (right, left)):
            if isinstance(other, int) and isinstance(one, str):
                _check_chars(len(one) * other)
            elif isinstance(other, int) and isinstance(one, (list, tuple)):
                _check_items(len(one) * other)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))
    elif operator == "%" and isinstance(left, str):
        _check_format(left)


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise TemplateError(f"the chat template computes a number of more than {MAX_INT_BITS} bits")


def _check_format(value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, str) and _WIDE_FORMAT.search(value):
        raise TemplateError(f"the chat template formats with an unreasonable width: {value[:80]!r}")


def _check_width(value: Any, width: Any = 80, *_: Any, **__: Any) -> None:
    text = str(value)
    size = len(width) if isinstance(width, str) else width
    if isinstance(size, int):
        _check_chars((1 + text.count("\n") + text.count("\t")) * size)


def _check_replace(value: Any, old: Any, new: Any, *_: Any, **__: Any) -> None:
    text, removed = str(value), str(old)
    _check_chars(len(text) + (text.count(removed) if removed else len(text) + 1) * len(str(new)))


def _check_join(value: Any, d: Any = "", *_: Any, **__: Any) -> None:
    if hasattr(value, "__len__"):
        _check_chars(len(value) * len(str(d)))


def _check_groups(value: Any, count: Any, *_: Any, **__: Any) -> None:
    if isinstance(count, int):
        _check_items(count)


def _check_str_method(owner: str, name: str, args: tuple[Any, ...]) -> None:
    if name in _PADDING_METHODS and args:
        _check_width(owner, args[0])
    elif name == "replace" and len(args) >= 2:
        _check_replace(owner, args[0], args[1])
    elif name == "join" and args:
        _check_join(args[0], owner)
    elif name in ("format", "format_map"):
        _check_format(owner)
        if any(isinstance(arg, int) and abs(arg) > MAX_ITEMS for arg in args):
            raise TemplateError("the chat template formats with an unreasonable width")


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "center": _check_width,
    "indent": _check_width,
    "format": _check_format,
    "replace": _check_replace,
    "join": _check_join,
    "batch": _check_groups,
    "slice": _check_groups,
}


def _checked_filter(inner: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    own_args = 1 if hasattr(inner, "jinja_pass_arg") else 0  # the context comes first

    @functools.wraps(inner)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args[own_args:], **kwargs)
        return inner(*args, **kwargs)

    return checked
