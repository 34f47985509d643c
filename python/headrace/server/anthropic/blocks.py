"""The content blocks of a conversation in /v1/messages, made into messages of a chat."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.server.chat_form import call_form, image_part, joined_parts, text_part

_CACHED = "equal beginnings of prompts are found without it"


def read_conversation(body: Body) -> list[dict[str, Any]]:
    """Takes `messages`. Raises ProtocolError that names the message and its field."""
    body.required("messages")
    messages: list[dict[str, Any]] = []
    for i, value in enumerate(body.array("messages") or []):
        message = Body(value, f"messages[{i}]")
        message.required("role")
        role = message.choice("role", ("user", "assistant", "system"))
        content = message.required("content")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            messages.append(_assistant(message))
        else:
            messages.extend(_user(message, str(role)))
        message.finish()
        body.notes.extend(message.notes)
    if messages and messages[-1]["role"] == "assistant":
        raise ProtocolError(
            "messages must end with one of the user: answers that are begun are not gone on with",
            "messages",
            "unsupported_value",
        )
    return messages


def read_texts(owner: Body, name: str) -> str:
    """The text blocks of an array under `name`, joined. Raises ProtocolError for others."""
    texts = []
    for i, value in enumerate(owner.array(name) or []):
        block = _block(owner, value, f"{owner.path(name)}[{i}]", ("text",))
        texts.append(_text(block))
        _end(owner, block)
    return "\n".join(texts)


def _user(message: Body, role: str) -> list[dict[str, Any]]:
    """Results of tools come as messages of their own, in their order."""
    messages: list[dict[str, Any]] = []
    for i, value in enumerate(message.array("content") or []):
        path = f"{message.path('content')}[{i}]"
        block = _block(message, value, path, ("text", "image", "tool_result"))
        kind = str(value.get("type"))
        if kind == "tool_result":
            messages.append(_tool_result(block))
        else:
            part = _part(block, kind)
            if not (messages and messages[-1]["role"] == role):
                messages.append({"role": role, "content": []})
            messages[-1]["content"].append(part)
        _end(message, block)
    for read in messages:
        if isinstance(read["content"], list):
            read["content"] = joined_parts(read["content"])
    return messages


def _part(block: Body, kind: str) -> dict[str, Any]:
    """A block of text or an image, as a part of OpenAI's."""
    if kind == "text":
        return text_part(_text(block))
    block.required("source")
    source = Body(block.mapping("source"), block.path("source"))
    source.required("type")
    if source.choice("type", ("base64", "url")) == "url":
        source.required("url")
        address = source.text("url")
    else:
        for name in ("media_type", "data"):
            source.required(name)
        address = f"data:{source.text('media_type')};base64,{source.text('data')}"
    source.finish()
    return image_part(address)


def _tool_result(block: Body) -> dict[str, Any]:
    block.required("tool_use_id")
    content = block.take("content")
    parts = [text_part(content)] if isinstance(content, str) else []
    for i, value in enumerate([] if parts else block.array("content") or []):
        own = _block(block, value, f"{block.path('content')}[{i}]", ("text", "image"))
        parts.append(_part(own, value["type"]))
        _end(block, own)
    if block.flag("is_error"):
        if not parts or parts[0]["type"] != "text":
            parts.insert(0, text_part(""))
        parts[0] = text_part("Error: " + parts[0]["text"])
    shown = joined_parts(parts)
    return {"role": "tool", "tool_call_id": block.text("tool_use_id"), "content": shown}


def _assistant(message: Body) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    kinds = ("text", "thinking", "redacted_thinking", "tool_use")
    for i, value in enumerate(message.array("content") or []):
        block = _block(message, value, f"{message.path('content')}[{i}]", kinds)
        kind = value.get("type")
        if kind == "text":
            texts.append(_text(block))
        elif kind == "thinking":
            block.required("thinking")
            thoughts.append(block.text("thinking") or "")
            block.text("signature")
        elif kind == "tool_use":
            calls.append(_tool_use(block))
        else:
            block.note("data", "thoughts that can't be read are left out")
        _end(message, block)
    read: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        read["reasoning_content"] = "\n".join(thoughts)
    if calls:
        read["tool_calls"] = calls
    return read


def _tool_use(block: Body) -> dict[str, Any]:
    for name in ("id", "name", "input"):
        block.required(name)
    arguments = json.dumps(block.mapping("input"), ensure_ascii=False)
    return call_form(block.text("id") or "", block.text("name") or "", arguments)


def _block(owner: Body, value: Any, path: str, kinds: tuple[str, ...]) -> Body:
    block = Body(value, path)
    block.required("type")
    if block.text("type") not in kinds:
        raise ProtocolError(
            f"{path}.type must be one of {', '.join(kinds)}: there is no other kind here",
            f"{path}.type",
            "unsupported_value",
        )
    return block


def _text(block: Body) -> str:
    block.required("text")
    block.refuse("citations", "there are none", [])
    return block.text("text") or ""


def _end(owner: Body, block: Body) -> None:
    block.note("cache_control", _CACHED)
    block.finish()
    owner.notes.extend(block.notes)
