"""The messages of ollama's conversations, made into messages of a chat."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.chat_form import call_form, image_part, text_part

_ROLES = ("system", "user", "assistant", "tool")


def read_conversation(body: Body) -> list[dict[str, Any]]:
    """Takes `messages`; none are an empty list. Raises ProtocolError that names the message."""
    messages: list[dict[str, Any]] = []
    calls = _Calls()
    for i, value in enumerate(body.array("messages") or []):
        message = Body(value, f"messages[{i}]")
        message.required("role")
        role = message.choice("role", _ROLES)
        read: dict[str, Any] = {"role": role}
        read["content"] = shown_content(message, message.text("content") or "")
        thinking = message.text("thinking")
        if thinking and role == "assistant":
            read["reasoning_content"] = thinking
        made = [
            calls.made(call, f"{message.path('tool_calls')}[{place}]")
            for place, call in enumerate(message.array("tool_calls") or [])
        ]
        if made:
            read["tool_calls"] = made
        call_id, name = message.text("tool_call_id"), message.text("tool_name")
        if role == "tool":
            read["tool_call_id"] = calls.answered(call_id, name, message.path("tool_name"))
            if name:
                read["name"] = name
        message.finish()
        messages.append(read)
    return messages


def shown_content(owner: Body, text: str) -> str | list[dict[str, Any]]:
    """With the owner's `images` before the text, as ollama shows them. Raises ProtocolError."""
    parts = []
    for i, image in enumerate(owner.array("images") or []):
        path = f"{owner.path('images')}[{i}]"
        if not isinstance(image, str) or not image:
            raise ProtocolError(
                f"{path} must be a string of base64, got {quoted(image)}", path, "invalid_type"
            )
        parts.append(image_part(f"data:;base64,{image}"))
    if not parts:
        return text
    return [*parts, text_part(text)] if text else parts


class _Calls:
    """The calls of a conversation. Those without an id get one: nine characters, which every
    template takes. Their answers come by the tool's name, or in the calls' order."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[tuple[str, str]] = []  # id and tool of calls without an answer

    def made(self, value: Any, path: str) -> dict[str, Any]:
        call = Body(value, path)
        call.choice("type", ("function",))
        call_id = call.text("id") or f"call{self._count:05d}"
        function = Body(call.required("function"), f"{path}.function")
        function.required("name")
        name = function.text("name") or ""
        arguments = json.dumps(function.mapping("arguments") or {}, ensure_ascii=False)
        function.integer("index")
        function.finish()
        call.finish()
        self._count += 1
        self._open.append((call_id, name))
        return call_form(call_id, name, arguments)

    def answered(self, call_id: str | None, name: str | None, path: str) -> str:
        """The id of the call that is answered."""
        for place, (known, tool) in enumerate(self._open):
            if call_id == known or (call_id is None and name in (None, "", tool)):
                del self._open[place]
                return known
        if call_id is not None:
            return call_id
        what = "there is no call left" if not name else f"there is no call of {quoted(name)} left"
        raise ProtocolError(f"{path}: {what} that this message could answer", path)
