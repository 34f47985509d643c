"""The content blocks of a conversation in /v1/messages, made into messages of a chat."""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.chat_form import call_form, image_part, joined_parts, text_part

_CACHED = "equal beginnings of prompts are found without it"
_NOT_SHOWN = "tools of the vendor's servers are not shown to the model"
_UNCITED = "answers cite nothing"
_NO_CITATIONS = {"enabled": False}
_SHOWN = ("text", "image", "document", "search_result")
# Made by a vendor's server alone: calls of its own tools, and what came of them.
_HOSTED = re.compile(r"server_tool_use|mcp_tool_use|container_upload|[a-z_]+_tool_result")


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
        block = _block(message, value, path, (*_SHOWN, "tool_result"))
        kind = str(value.get("type"))
        if _is_hosted(kind):
            block.leave_out(_NOT_SHOWN)
        elif kind == "tool_result":
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
    """A block of text, a document or an image, as a part of OpenAI's."""
    if kind == "text":
        return text_part(_text(block))
    if kind == "document":
        return text_part(_document(block))
    if kind == "search_result":
        block.note("citations", _UNCITED, _NO_CITATIONS)
        heading = [block.text("title"), block.text("source")]
        return text_part("\n".join([*filter(None, heading), read_texts(block, "content")]))
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


def _document(block: Body) -> str:
    """Its text, with its title before it. Raises ProtocolError for one that isn't text."""
    block.note("citations", _UNCITED, _NO_CITATIONS)
    block.required("source")
    source = Body(block.mapping("source"), block.path("source"))
    source.required("type")
    kind = source.text("type")
    if kind == "text":
        source.required("data")
        source.choice("media_type", ("text/plain",))
        text = source.text("data") or ""
    elif kind == "content":
        content = source.required("content")
        text = content if isinstance(content, str) else read_texts(source, "content")
    else:
        raise ProtocolError(
            f"{source.path('type')}: only documents of text are read; send others' text or pages "
            f"as images, got {quoted(kind)}",
            source.path("type"),
            "unsupported_value",
        )
    source.finish()
    block.notes.extend(source.notes)
    return "\n".join([*filter(None, [block.text("title"), block.text("context")]), text])


def _tool_result(block: Body) -> dict[str, Any]:
    block.required("tool_use_id")
    content = block.take("content")
    parts = [text_part(content)] if isinstance(content, str) else []
    for i, value in enumerate([] if parts else block.array("content") or []):
        path = f"{block.path('content')}[{i}]"
        own = _block(block, value, path, (*_SHOWN, "tool_reference"))
        if value["type"] == "tool_reference":
            own.leave_out("the model sees all tools from the start")
        elif not _is_hosted(value["type"]):
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
        kind = str(value.get("type"))
        if _is_hosted(kind):
            block.leave_out(_NOT_SHOWN)
        elif kind == "text":
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
    block.note("caller", "the model alone calls tools", {"type": "direct"})
    arguments = json.dumps(block.mapping("input"), ensure_ascii=False)
    return call_form(block.text("id") or "", block.text("name") or "", arguments)


def _block(owner: Body, value: Any, path: str, kinds: tuple[str, ...]) -> Body:
    block = Body(value, path)
    block.required("type")
    kind = block.text("type") or ""
    if kind not in kinds and not _is_hosted(kind):
        raise ProtocolError(
            f"{path}.type must be one of {', '.join(kinds)}: there is no other kind here",
            f"{path}.type",
            "unsupported_value",
        )
    return block


def _is_hosted(kind: str) -> bool:
    return _HOSTED.fullmatch(kind) is not None


def _text(block: Body) -> str:
    block.required("text")
    block.note("citations", _UNCITED, [])
    return block.text("text") or ""


def _end(owner: Body, block: Body) -> None:
    block.note("cache_control", _CACHED)
    block.finish()
    owner.notes.extend(block.notes)
