"""Tools as objects, under the names of OpenAI's protocol."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from headrace.quoting import quoted


@dataclass
class FunctionDefinition:
    """A function that the model may call. `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name must be a string that is not empty, got {quoted(self.name)}")
        for name, kind in (("description", str), ("parameters", dict)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__} or None, got {quoted(value)}")


@dataclass(kw_only=True)
class ChatCompletionToolsParam:
    """A tool for `LLM.chat(tools=...)`. `function` may be given as a dict.

    Raises ValueError for anything but a function with a name.
    """

    type: str = "function"
    function: FunctionDefinition

    def __post_init__(self) -> None:
        if self.type != "function":
            raise ValueError(f"type must be 'function', got {quoted(self.type)}")
        if isinstance(self.function, Mapping):
            self.function = _definition(self.function)
        if not isinstance(self.function, FunctionDefinition):
            raise ValueError(f"function must be a FunctionDefinition, got {quoted(self.function)}")

    def model_dump(self, exclude_none: bool = False) -> dict[str, Any]:
        """The tool as dicts; without what is None with `exclude_none`."""
        function = {
            name: value
            for name, value in vars(self.function).items()
            if not (exclude_none and value is None)
        }
        return {"type": self.type, "function": function}


def _definition(values: Mapping[str, Any]) -> FunctionDefinition:
    known = [item.name for item in fields(FunctionDefinition)]
    unknown = ", ".join(sorted(str(key) for key in values if key not in known))
    if unknown:
        warnings.warn(f"function: no effect of {unknown:.200}", stacklevel=4)
    return FunctionDefinition(**{"name": "", **{k: v for k, v in values.items() if k in known}})


@dataclass(slots=True, frozen=True)
class ToolChoice:
    """Whether functions may be called ("auto"), must be, or one of a name must be."""

    kind: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None  # of the one that must be called
    parallel: bool = True  # several calls may be made


def read_tool_choice(value: Any, names: Sequence[str]) -> ToolChoice:
    """From OpenAI's "auto", "none", "required" or {"type": "function", "function": {"name": ...}}.

    None: "auto". names: of the functions there are. Raises ValueError for anything else.
    """
    if value is None or isinstance(value, ToolChoice):
        return value or ToolChoice()
    if value in ("auto", "none", "required"):
        if value == "required" and not names:
            raise ValueError("tool_choice 'required' needs tools")
        return ToolChoice(value)
    function = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(
            "tool_choice must be 'auto', 'none', 'required' or {'type': 'function', 'function': "
            f"{{'name': ...}}}}, got {quoted(value)}"
        )
    if name not in names:
        raise ValueError(f"tool_choice names {quoted(name)}, which is not among the tools")
    return ToolChoice("named", name)


def tool_list(tools: Any) -> list[dict[str, Any]] | None:
    """Tool definitions as dicts; accepts one or several, as dicts or objects with model_dump().

    Raises RuntimeError for a malformed one.
    """
    if tools is None:
        return None
    items = tools if isinstance(tools, (list, tuple)) else [tools]
    return [_tool(item) for item in items] or None


def _tool(item: Any) -> dict[str, Any]:
    if hasattr(item, "model_dump"):
        item = item.model_dump(exclude_none=True)
    function = item.get("function") if isinstance(item, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    kind = item.get("type", "function") if isinstance(item, Mapping) else None
    if kind != "function" or not isinstance(name, str) or not name:
        raise RuntimeError(
            "Failed to validate 'tools' parameter in chat method: expected "
            f"{{'type': 'function', 'function': {{'name': ...}}}}, got {quoted(item)}"
        )
    return {"type": "function", **item}
