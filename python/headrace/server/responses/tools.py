"""The tools of /v1/responses, made into functions of a chat, and their calls made back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.chat_form import tool_form

# Tools that OpenAI's servers run themselves, or know by heart; some carry a date.
_HOSTED = re.compile(
    r"(web_search|web_search_preview|file_search|code_interpreter|computer|computer_use|"
    r"computer_use_preview|image_generation|mcp|local_shell|shell|apply_patch|tool_search)"
    r"(_\d{4}_\d{2}_\d{2})?"
)
_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
_MOST_NAME = 64


def shown_name(namespace: str | None, name: str) -> str:
    """What the model calls a function of a namespace."""
    joined = f"{namespace.rstrip('_')}__{name}" if namespace else name
    return joined if len(joined) <= _MOST_NAME else name


def custom_arguments(text: str) -> str:
    """The arguments of a call of a custom tool, whose input is `text`."""
    return json.dumps({"input": text}, ensure_ascii=False)


def custom_input(arguments: str) -> str:
    """The input that such arguments hold; of others, which a model may write: all of it."""
    try:
        value = json.loads(arguments)["input"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return arguments
    return value if isinstance(value, str) else arguments


@dataclass(slots=True)
class ClientTools:
    """given: as the client has them. forms: functions for the chat, by shown name. choice: the
    chat's tool_choice. namespaces: (namespace, name) by shown name. custom: shown names of tools
    that take text."""

    given: list[Any]
    forms: dict[str, dict[str, Any]] = field(default_factory=dict)
    choice: Any = None
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)
    custom: set[str] = field(default_factory=set)


def read_client_tools(body: Body) -> ClientTools:
    """Takes tools and tool_choice. Tools of the vendor's servers are left out and noted."""
    tools = ClientTools(body.array("tools") or [])
    for i, value in enumerate(tools.given):
        _read_tool(body, tools, value, f"tools[{i}]", None)
    _read_choice(body, tools)
    return tools


def _read_tool(owner: Body, tools: ClientTools, value: Any, path: str, space: str | None) -> None:
    tool = Body(value, path)
    tool.required("type")
    kind = tool.text("type") or ""
    if kind == "namespace" and space is None:
        tool.required("name")
        tool.text("description")
        for i, inner in enumerate(tool.array("tools") or []):
            _read_tool(owner, tools, inner, f"{path}.tools[{i}]", tool.text("name"))
    elif kind == "function":
        _function(tool, tools, space)
    elif kind == "custom":
        _custom(owner, tool, tools, space)
    elif _HOSTED.fullmatch(kind):
        owner.notes.append(f"{path} is left out: {kind} is a tool of the vendor's servers")
        return
    else:
        raise ProtocolError(
            f"{path}.type must be function, custom or namespace, got {quoted(kind)}",
            f"{path}.type",
            "unsupported_value",
        )
    tool.note("defer_loading", "the model sees all tools from the start", False)
    tool.finish()
    owner.notes.extend(tool.notes)


def _function(tool: Body, tools: ClientTools, space: str | None) -> None:
    tool.flag("strict")  # arguments keep to the schema wherever a call is constrained
    name = _new_name(tool, tools, space)
    tools.forms[name] = tool_form(name, tool.text("description"), tool.mapping("parameters"))


def _custom(owner: Body, tool: Body, tools: ClientTools, space: str | None) -> None:
    """A function with the text as its one parameter."""
    name = _new_name(tool, tools, space)
    tools.custom.add(name)
    description = tool.text("description") or ""
    given = tool.mapping("format")
    if given is not None:
        form = Body(given, tool.path("format"))
        form.required("type")
        if form.choice("type", ("text", "grammar")) == "grammar":
            grammar = f"{form.text('syntax')} grammar:\n{form.text('definition')}"
            description = f"{description}\nThe input keeps to this {grammar}".strip()
            owner.notes.append(f"{tool.path('format')} is told to the model, not enforced")
        form.finish()
    tools.forms[name] = tool_form(name, description or None, _INPUT)


def _new_name(tool: Body, tools: ClientTools, space: str | None) -> str:
    tool.required("name")
    name = tool.text("name") or ""
    shown = shown_name(space, name)
    if shown in tools.forms:
        raise ProtocolError(f"{tool.path('name')}: there are two tools {quoted(shown)}", "tools")
    if space is not None:
        tools.namespaces[shown] = (space, name)
    return shown


def _read_choice(body: Body, tools: ClientTools) -> None:
    choice = tools.choice = body.take("tool_choice")
    if not isinstance(choice, dict):
        return
    named = Body(choice, "tool_choice")
    named.required("type")
    if named.choice("type", ("function", "custom", "allowed_tools")) == "allowed_tools":
        tools.choice = named.choice("mode", ("auto", "required"))
        named.required("tools")
        allowed = set(_allowed(named))
        for name in allowed - tools.forms.keys():
            raise ProtocolError(f"tool_choice: there is no tool {quoted(name)}", "tool_choice")
        tools.forms = {name: form for name, form in tools.forms.items() if name in allowed}
    else:
        tools.choice = {"type": "function", "function": {"name": _chosen(named)}}
    named.finish()


def _allowed(choice: Body) -> Iterator[str]:
    for i, value in enumerate(choice.array("tools") or []):
        entry = Body(value, f"tool_choice.tools[{i}]")
        kind = entry.text("type") or ""
        if not _HOSTED.fullmatch(kind):
            yield _chosen(entry)


def _chosen(named: Body) -> str:
    named.required("name")
    return shown_name(named.text("namespace"), named.text("name") or "")
