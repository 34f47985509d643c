"""The tools of a request, and whether one must be called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from headrace.options.tools import ToolChoice
from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

_MOST_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(slots=True)
class ToolUse:
    """The tools a request offers.

    tools: OpenAI's dicts, in their order; empty: none.
    choice: "auto", "none" (they are not shown), "required", or "named": `name` must be called.
    parallel: several calls may be made in one answer.
    """

    tools: list[dict[str, Any]]
    choice: Literal["auto", "none", "required", "named"]
    name: str | None = None
    parallel: bool = True

    @property
    def shown(self) -> list[dict[str, Any]] | None:
        """What the chat template gets."""
        return None if self.choice == "none" else self.tools or None

    @property
    def wanted(self) -> Any:
        """`tool_choice` as LLM.chat takes it; None: nothing is said."""
        if not self.parallel and self.tools:
            return ToolChoice(self.choice, self.name, parallel=False)
        if self.choice == "named":
            return {"type": "function", "function": {"name": self.name}}
        return self.choice if self.tools and self.choice == "required" else None


def read_tools(body: Body) -> ToolUse:
    """Takes tools, tool_choice and parallel_tool_calls. Raises ProtocolError."""
    body.refuse("functions", "use tools")
    body.refuse("function_call", "use tool_choice")
    tools = body.array("tools") or []
    if len(tools) > _MOST_TOOLS:
        raise ProtocolError(
            f"tools may have at most {_MOST_TOOLS} entries, got {len(tools)}", "tools"
        )
    names = [_tool_name(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    parallel = body.flag("parallel_tool_calls")
    choice, name = _choice(body.take("tool_choice"), names)
    return ToolUse(tools, choice, name, parallel is not False)


def _tool_name(value: Any, path: str) -> str:
    tool = Body(value, path)
    tool.required("type")
    tool.choice("type", ("function",))
    function = Body(tool.required("function"), f"{path}.function")
    function.required("name")
    name = function.text("name") or ""
    if not _NAME.fullmatch(name):
        raise ProtocolError(
            f"{path}.function.name must be 1 to 64 letters, digits, '_', '-' and '.', "
            f"got {quoted(name)}",
            f"{path}.function.name",
        )
    function.text("description")
    function.mapping("parameters")
    function.flag("strict")
    function.finish()
    tool.finish()
    return name


def _choice(
    value: Any, names: list[str]
) -> tuple[Literal["auto", "none", "required", "named"], str | None]:
    if value is None:
        return "auto", None
    if value in ("auto", "none"):
        return value, None
    if not names:
        raise ProtocolError("tool_choice needs tools", "tool_choice")
    if value == "required":
        return "required", None
    if isinstance(value, str):
        raise ProtocolError(
            f"tool_choice must be auto, none, required or a function, got {quoted(value)}",
            "tool_choice",
        )
    named = Body(value, "tool_choice")
    named.required("type")
    named.choice("type", ("function",))
    function = Body(named.required("function"), "tool_choice.function")
    function.required("name")
    name = function.text("name")
    function.finish()
    named.finish()
    if name not in names:
        raise ProtocolError(f"tool_choice: there is no tool {quoted(name)}", "tool_choice")
    return "named", name
