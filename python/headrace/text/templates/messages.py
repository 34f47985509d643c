"""Conversations as callers write them, made ready for a text template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from headrace.errors import UnsupportedError
from headrace.quoting import quoted, shortened

_PICTURES = frozenset({"image", "image_url", "video", "video_url"})
_NO_OBJECT = "INVALID_JSON"  # has what is no object: a call that was cut
_SOUNDS = frozenset({"audio", "audio_url", "input_audio"})


def parse_messages(messages: Sequence[Any], *, media: bool = False) -> list[dict[str, Any]]:
    """Copies of the messages, each with its content as one string.

    Parts of text are joined by newlines; no content is an empty string. Arguments of tool calls
    are objects, also where they are JSON text, missing or cut. Raises ValueError for a
    malformed message.

    What an earlier answer has as "reasoning" or "thinking" is its "reasoning_content", too.

    media: images and clips may be among the parts. The content of a message that has some is a
        list of {"type": "text", "text": ...}, {"type": "image"} and {"type": "video"}.
    """
    if not messages:
        raise ValueError("messages must not be empty")
    return [_message(message, media) for message in messages]


def _message(message: Any, media: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"a message must be a dict, got {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ValueError(f"a message must have a role, got {quoted(role)}")
    calls = _tool_calls(message.get("tool_calls"))
    if "content" not in message and not calls:
        raise ValueError(f"the message of role {quoted(role)} has no content")
    parsed = {**message, "content": _content(message.get("content"), media)}
    for name in ("reasoning", "thinking"):
        # As other servers and clients call it; templates know one name.
        if isinstance(message.get(name), str) and message.get("reasoning_content") is None:
            parsed["reasoning_content"] = message[name]
    if calls:
        parsed["tool_calls"] = calls
    return parsed


def _content(content: Any, media: bool) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise ValueError(
            f"the content of a message must be a string or a list of parts, "
            f"got {type(content).__name__}"
        )
    parts = [_part(part, media) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: Any, media: bool) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in _PICTURES:
        if not media:
            raise UnsupportedError(
                f"content part of type {quoted(kind)}: this model reads text only; send text "
                "parts, or load a vision model"
            )
        return {"type": kind.removesuffix("_url")}
    if isinstance(kind, str) and kind in _SOUNDS:
        raise UnsupportedError(
            f"content part of type {quoted(kind)}: Headrace has no models that hear; send text"
        )
    if kind != "text":
        raise ValueError(f"Unknown content part type: {shortened(str(kind))}")
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError(f"a text part must have a string under 'text', got {quoted(text)}")
    return {"type": "text", "text": text}


def _tool_calls(calls: Any) -> list[Any]:
    if calls is None:
        return []
    if not isinstance(calls, Iterable) or isinstance(calls, (str, Mapping)):
        raise ValueError(f"tool_calls must be a list, got {quoted(calls)}")
    return [_tool_call(call) for call in calls]


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _arguments(value: Any) -> Mapping[str, Any]:
    """As the object that templates go through, whatever an earlier turn has left of it."""
    for _ in range(2):  # an object, JSON, or JSON in a string of JSON
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            break
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else {_NO_OBJECT: value}
