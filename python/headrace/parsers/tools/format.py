"""How a model writes calls: what a tool parser has to know."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.parsers.tool_call import new_call_id
from headrace.parsers.tools.tool_schema import tool_schema

_SPACE = re.compile(r"\s*")


@dataclass(slots=True, frozen=True)
class Function:
    """A function that may be called. parameters: a JSON schema of its arguments. strict: what of
    it can't be guided is an error; else it is left to the model."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tool_schema(self.parameters))

    @classmethod
    def from_tool(cls, tool: Mapping[str, Any]) -> Function:
        """From OpenAI's {"type": "function", "function": {"name", "parameters"}}.

        A function without parameters takes the empty object alone.
        """
        function = tool["function"]
        parameters = function.get("parameters") or {}
        return cls(function["name"], parameters, function.get("strict") is True)


@dataclass(slots=True, frozen=True)
class Reading:
    """length: how much of the text has been read. calls: None if it is no call."""

    length: int
    calls: list[tuple[str, str]] | None  # name, arguments


class ToolFormat:
    """How one kind of model writes calls. One object for each output; subclass it for a new kind.

    markers: strings at which a call begins.
    at_start: calls come first in an output, or right behind another call: markers elsewhere are
        text.
    separators: what may stand between such calls, beside whitespace.
    text_end: what ends an argument that is written as plain text.
    others: the other strings of the format that may be special tokens of a model.
    guided: the calls of this output follow `grammar`, so their arguments can be told as they come.
    """

    markers: ClassVar[tuple[str, ...]] = ()
    at_start: ClassVar[bool] = False
    separators: ClassVar[str] = ""
    others: ClassVar[tuple[str, ...]] = ()
    text_end: ClassVar[str] = ""

    def __init__(self, functions: Sequence[Function] = ()) -> None:
        """`functions`: those of the request; () if unknown."""
        self.guided = False
        self.functions = {function.name: function for function in functions}

    def begin(self) -> None:
        """A marker has been found: `read` is about another call from here on."""

    def read(self, text: str, final: bool) -> Reading | None:
        """Reads a call, or several, in a text that begins with a marker.

        final: there will be no more text; else it comes again, with more behind it. None: more is
        needed. What is said, and how much is read, must not depend on how the text has come.
        """
        raise NotImplementedError

    def arguments_at(self, text: str) -> tuple[str, int] | None:
        """Of a text that begins with a marker: the name of a guided call, and where the JSON object
        of its arguments begins; None: not yet, or the call comes when it is whole."""
        return None

    def may_follow(self, before: str) -> bool:
        """Whether a call may come after this text: all since the last call, or the beginning."""
        return True

    def new_id(self) -> str:
        """An id for a call."""
        return new_call_id()

    def grammar(
        self, functions: Sequence[Function], text: Callable[[str], str], several: bool
    ) -> str:
        """What follows `markers[0]` where there is a call, or `several`, in llguidance's Lark.

        functions: the ones that may be called. text: a literal as Lark wants it, special tokens by
        name. Raises NotImplementedError if calls can't be guided.
        """
        raise NotImplementedError


def head_in(
    functions: Mapping[str, Function], head: Callable[[str], str], text: str, start: int
) -> tuple[str, int] | None:
    """The function whose `head` stands in a text from `start` on, with "{" behind it, and where
    that is."""
    for name in functions:
        written = head(name)
        if text.startswith(written + "{", start):
            return name, start + len(written)
    return None


def skip_space(text: str, start: int) -> int:
    """Where what isn't whitespace begins, from `start` on."""
    found = _SPACE.match(text, start)
    return start if found is None else found.end()


def literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)
