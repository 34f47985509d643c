"""A call of a function, as OpenAI and FastDeploy write it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class FunctionCall:
    """name: of the function. arguments: JSON text of an object."""

    name: str
    arguments: str


@dataclass(slots=True)
class ToolCall:
    """id: for the message of role "tool" that answers it. index: which of the output's calls.

    A call is whole: an increment of a stream has a call or it doesn't.
    """

    id: str
    function: FunctionCall
    type: str = "function"
    index: int = 0

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
