"""The messages of a conversation, checked."""

from __future__ import annotations

from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

# "developer" is OpenAI's newer word for "system", which is what templates know.
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def read_messages(value: Any) -> list[dict[str, Any]]:
    """As the engine takes them. Raises ProtocolError that names the message and its field.

    Fields that the protocol doesn't know reach the chat template as they are.
    """
    if not isinstance(value, list):
        raise ProtocolError(
            f"messages must be an array, got {quoted(value)}", "messages", "invalid_type"
        )
    if not value:
        raise ProtocolError("messages must not be empty", "messages")
    return [_message(item, f"messages[{i}]") for i, item in enumerate(value)]


def _message(value: Any, path: str) -> dict[str, Any]:
    message = Body(value, path)
    message.required("role")
    role = _ROLES[message.choice("role", _ROLES) or ""]
    for name, instead in (("function_call", "tool_calls"), ("audio", "text")):
        message.refuse(name, f"is not supported; send {instead}")
    if role == "tool":
        message.required("tool_call_id")
        message.text("tool_call_id")
    message.text("name")
    calls = message.array("tool_calls")
    for i, call in enumerate(calls or ()):
        _tool_call(call, f"{path}.tool_calls[{i}]")
    content = message.take("content")
    if content is None and role != "assistant":
        message.required("content")
    _check_content(content, f"{path}.content")
    given = {name: item for name, item in value.items() if item is not None}
    return {**given, "role": role, "content": content}


def _check_content(content: Any, path: str) -> None:
    """Kinds of parts are the engine's to judge: it depends on the model which ones it takes."""
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise ProtocolError(
            f"{path} must be a string or an array of parts, got {quoted(content)}",
            path,
            "invalid_type",
        )
    for i, part in enumerate(content):
        own = Body(part, f"{path}[{i}]")
        own.required("type")
        if own.text("type") == "text":
            own.required("text")
            own.text("text")


def _tool_call(value: Any, path: str) -> None:
    call = Body(value, path)
    call.text("id")
    call.choice("type", ("function",))
    function = Body(call.required("function"), f"{path}.function")
    function.required("name")
    function.text("name")
    function.take("arguments")  # whatever an earlier turn has left: templates get an object
