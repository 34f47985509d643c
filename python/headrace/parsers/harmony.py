"""gpt-oss's harmony format: messages in channels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from headrace.parsers.markers import Markers
from headrace.parsers.stage import Kind, Piece, Stage, content, reasoning
from headrace.parsers.strict_json import read_json, write_json
from headrace.parsers.tool_call import FunctionCall, ToolCall, new_call_id
from headrace.parsers.tools.format import Function, literal
from headrace.parsers.tools.schemas import json_rule

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
END, CALL, RETURN, CONSTRAIN = "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"
MARKERS = (START, CHANNEL, MESSAGE, END, CALL, RETURN, CONSTRAIN)
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
ANSWER = f"{END}{START}assistant{CHANNEL}final{MESSAGE}"  # ends the thinking
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class Harmony(Stage):
    """The channel `analysis` is reasoning, a message to functions.NAME a call, all else content.

    A message to another recipient stays in its channel. A call whose arguments aren't a JSON object
    is content.
    """

    def __init__(
        self,
        *,
        split_reasoning: bool,
        split_calls: bool,
        thinking: bool = False,
        guided: Collection[str] = (),
    ) -> None:
        """Without a split, that part is content, too. thinking: the prompt has begun a thought.

        guided: functions whose arguments come as they are written, whole or not.
        """
        self._guided = guided
        self._told = False  # the call that is being read has been begun
        self._split_reasoning = split_reasoning
        self._split_calls = split_calls
        self._first = Markers(START, CHANNEL)
        self._head_end = Markers(MESSAGE)
        self._body_end = Markers(START, CHANNEL, END, CALL, RETURN)
        self._buffer = ""
        self._in_head = False
        self._channel = "analysis" if thinking else "final"
        self._function = ""
        self._arguments = ""

    @property
    def held(self) -> int:
        return len(self._buffer) + len(self._arguments)

    def push(self, text: str) -> Iterable[Piece]:
        self._buffer += text
        pieces: list[Piece] = []
        while True:
            more = self._read_head() if self._in_head else self._read_body(pieces)
            if not more:
                return pieces

    def finish(self) -> Iterable[Piece]:
        rest, self._buffer = self._buffer, ""
        if self._in_head:
            return content(rest)
        return self._said(rest) + self._ended()

    def _read_head(self) -> bool:
        head, marker, rest = self._head_end.split(self._buffer)
        if marker is None:
            return False
        channel = _CHANNEL.search(head)
        recipient = _RECIPIENT.search(head)
        self._channel = "final" if channel is None else channel.group(1)
        name = "" if recipient is None else recipient.group(1)
        self._function = name.removeprefix("functions.") if name.startswith("functions.") else ""
        self._arguments = ""
        self._buffer, self._in_head = rest, False
        return True

    def _read_body(self, pieces: list[Piece]) -> bool:
        text, marker, rest = self._body_end.split(self._buffer)
        pieces += self._said(text)
        self._buffer = rest
        if marker is None:
            return False
        pieces += self._ended()
        if marker in (START, CHANNEL):
            self._buffer, self._in_head = marker + rest, True
        return True

    def _said(self, text: str) -> list[Piece]:
        if self._function and self._split_calls:
            if self._function in self._guided:
                return self._tell(text)
            self._arguments += text
            return []
        thinks = self._channel == "analysis" and self._split_reasoning and not self._function
        return reasoning(text) if thinks else content(text)

    def _tell(self, text: str) -> list[Piece]:
        """More of a guided call's arguments; the first of them begins the call."""
        if not text:
            return []
        name, self._told = "" if self._told else self._function, True
        call = ToolCall(new_call_id() if name else "", FunctionCall(name, text))
        return [Piece(Kind.TEXT, call=call)]

    def _ended(self) -> list[Piece]:
        """Of a message: the call, if it was one. What follows without a head is final."""
        name, text = self._function, self._arguments
        self._function, self._arguments, self._channel = "", "", "final"
        told, self._told = self._told, False
        if not name or not self._split_calls or told:
            return []
        try:
            value = read_json(text) if text.strip() else {}
        except ValueError:
            return content(text)
        if not isinstance(value, dict):
            return content(text)
        call = ToolCall(new_call_id(), FunctionCall(name, write_json(value)))
        return [Piece(Kind.TEXT, call=call)]


def call_grammar(
    functions: Sequence[Function],
    text: Callable[[str], str],
    required: bool,
    content: str | None = None,
) -> str:
    """An answer after the thinking, in llguidance's Lark: a call, or text unless it is `required`.

    text: as in ToolFormat.grammar. content: a rule for the text; None: any.
    """
    calls = " | ".join(
        f'({literal(f.name)} SPACE? {text(CONSTRAIN)} "json" {text(MESSAGE)} '
        f"{json_rule(f.parameters)})"
        for f in functions
    )
    answer = f'({text(CHANNEL)} "final" {text(MESSAGE)} {content or "TEXT"})'
    call = f'({text(CHANNEL)} "commentary to=functions." ({calls}))'
    head = f'({text(START)} "assistant")?'
    lines = [
        f"start: {head} {call}" if required else f"start: {head} ({call} | {answer})",
        "TEXT: /(.|\\n)*/",
        'SPACE: " "',
    ]
    return "\n".join(lines)
