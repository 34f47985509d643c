"""A call of a function, as OpenAI and FastDeploy write it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(slots=True)
class FunctionCall:
    """name: of the function. arguments: JSON text of an object."""

    name: str
    arguments: str


@dataclass(slots=True)
class ToolCall:
    """id: for the message of role "tool" that answers it. index: which of the output's calls.

    In a stream the arguments of a guided call come in pieces: the first has the id and the name,
    the others have neither ("") and the same index.
    """

    id: str
    function: FunctionCall
    type: str = "function"
    index: int = 0

    @property
    def continues(self) -> bool:
        """This is more of the arguments of the call before."""
        return not self.id

    def to_dict(self) -> dict[str, Any]:
        """As it goes into a message."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ToolCall:
        """The inverse of to_dict; unknown keys are ignored."""
        function = values["function"]
        return cls(
            values["id"],
            FunctionCall(function["name"], function["arguments"]),
            values.get("type", "function"),
            values.get("index", 0),
        )


def new_call_id() -> str:
    """A fresh id, shaped as FastDeploy's and vLLM's."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"


def joined_calls(calls: Iterable[Any]) -> list[Any]:
    """Whole calls of the pieces of a stream. What is no ToolCall stays as it is."""
    whole: list[Any] = []
    for call in calls:
        begun = whole[-1] if whole else None
        if not (isinstance(call, ToolCall) and isinstance(begun, ToolCall) and call.continues):
            whole.append(call)
            continue
        text = begun.function.arguments + call.function.arguments
        whole[-1] = replace(begun, function=FunctionCall(begun.function.name, text))
    return whole
