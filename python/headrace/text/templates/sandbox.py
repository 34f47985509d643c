"""The environment that jinja2 compiles chat templates in: its immutable sandbox, as transformers
sets it up. It keeps a template from reaching Python's internals or changing the messages. What it
may cost is bounded elsewhere: it runs in a process of its own (see process.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace.errors import TemplateError
from headrace.quoting import shortened

MAX_OUTPUT_CHARS = 1 << 24  # as many as headrace/chat_template.h allows bytes
_MAX_MESSAGE_CHARS = 1000  # of raise_exception


def render(template: str, variables: dict[str, Any]) -> str:
    """Raises TemplateError for every failure but MemoryError."""
    with _template_errors():
        return _render(template, variables)


def variables_read(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. Raises TemplateError, as above."""
    with _template_errors():
        return frozenset(meta.find_undeclared_variables(_environment().parse(template)))


@contextmanager
def _template_errors() -> Iterator[None]:
    try:
        yield
    except (TemplateError, MemoryError):
        raise
    except RecursionError as error:
        raise TemplateError("the chat template recurses too deeply") from error
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f" (line {line})"
        raise TemplateError(f"the chat template failed{where}: {shortened(str(error))}") from error
    except Exception as error:  # templates compute with whatever the messages hold
        what = f"{type(error).__name__}: {shortened(str(error))}"
        raise TemplateError(f"the chat template failed: {what}") from error


def _render(template: str, variables: dict[str, Any]) -> str:
    parts, size = [], 0
    for part in _compiled(template).generate(variables):
        size += len(part)
        if size > MAX_OUTPUT_CHARS:
            raise TemplateError(f"the chat template builds more than {MAX_OUTPUT_CHARS} characters")
        parts.append(part)
    return "".join(parts)


class GenerationTag(Extension):
    """{% generation %} ... {% endgeneration %}: training marks; the body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it as an instance variable)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


@lru_cache(maxsize=32)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
    )
    del environment.globals["lipsum"]
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.filters["tojson"] = _to_json
    return environment


def _raise_exception(message: str) -> None:
    raise TemplateError(shortened(str(message), _MAX_MESSAGE_CHARS))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models read it: no HTML escapes, unlike Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
