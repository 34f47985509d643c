"""The items of a conversation in /v1/responses, made into messages of a chat."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.server.chat_form import call_form, image_part, joined_parts, text_part
from headrace.server.responses.tools import custom_arguments, shown_name

_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")


def read_items(body: Body) -> list[dict[str, Any]]:
    """Takes `input`, an array. Raises ProtocolError that names the item and its field."""
    messages: list[dict[str, Any]] = []
    for i, value in enumerate(body.array("input") or []):
        item = Body(value, f"input[{i}]")
        kind = item.choice("type", _READERS) or "message"
        for name in ("id", "status"):
            item.text(name)  # of an earlier answer's item
        _READERS[kind](item, messages)
        item.finish()
        body.notes.extend(item.notes)
    if not messages:
        raise ProtocolError("input must not be empty", "input")
    return messages


def _read_message(item: Body, messages: list[dict[str, Any]]) -> None:
    item.required("role")
    role = item.choice("role", ("system", "developer", "user", "assistant"))
    item.text("phase")
    content = item.required("content")
    shown = content if isinstance(content, str) else read_content(item, "content")
    if role == "assistant" and _goes_on(messages) and "content" not in messages[-1]:
        messages[-1]["content"] = shown
    else:
        messages.append({"role": role, "content": shown})


def _read_call(item: Body, messages: list[dict[str, Any]]) -> None:
    for name in ("call_id", "name"):
        item.required(name)
    shown = shown_name(item.text("namespace"), item.text("name") or "")
    arguments = item.take("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = call_form(item.text("call_id") or "", shown, written)
    _turn(messages).setdefault("tool_calls", []).append(call)


def _read_custom_call(item: Body, messages: list[dict[str, Any]]) -> None:
    for name in ("call_id", "name", "input"):
        item.required(name)
    shown = shown_name(item.text("namespace"), item.text("name") or "")
    call = call_form(item.text("call_id") or "", shown, custom_arguments(item.text("input") or ""))
    _turn(messages).setdefault("tool_calls", []).append(call)


def _leave_out(item: Body, messages: list[dict[str, Any]]) -> None:
    """A call that a vendor's server has made; the model's text tells what came of it."""
    item.leave_out("tools of the vendor's servers are not shown to the model")


def _read_output(item: Body, messages: list[dict[str, Any]]) -> None:
    for name in ("call_id", "output"):
        item.required(name)
    item.text("name")  # of the call, which has it, too
    output = item.take("output")
    shown = output if isinstance(output, str) else read_content(item, "output")
    messages.append({"role": "tool", "tool_call_id": item.text("call_id"), "content": shown})


def _read_reasoning(item: Body, messages: list[dict[str, Any]]) -> None:
    item.array("summary")
    item.note("encrypted_content", "thoughts are read as they are")
    if item.take("content") is not None:
        turn: dict[str, Any] = {"role": "assistant"}
        turn["reasoning_content"] = read_text(item, "content", ("reasoning_text", "text"))
        messages.append(turn)


_READERS = {
    "message": _read_message,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "custom_tool_call": _read_custom_call,
    "custom_tool_call_output": _read_output,
    "reasoning": _read_reasoning,
    "web_search_call": _leave_out,
    "file_search_call": _leave_out,
    "code_interpreter_call": _leave_out,
    "image_generation_call": _leave_out,
    "mcp_list_tools": _leave_out,
    "tool_search_call": _leave_out,
    "tool_search_output": _leave_out,
}


def _goes_on(messages: list[dict[str, Any]]) -> bool:
    """The last message is one of the model's that has no calls yet."""
    return bool(messages) and messages[-1]["role"] == "assistant"


def _turn(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The model's message that a further item belongs to."""
    if not _goes_on(messages):
        messages.append({"role": "assistant"})
    return messages[-1]


def read_text(owner: Body, name: str, kinds: tuple[str, ...] = _TEXT_PARTS) -> str:
    """The parts of an array under `name`, joined. Raises ProtocolError for other than text."""
    return "\n".join(part["text"] for part in _parts(owner, name, kinds))


def read_content(owner: Body, name: str) -> str | list[dict[str, Any]]:
    """The same, as parts where images are among them."""
    return joined_parts(_parts(owner, name, (*_TEXT_PARTS, "input_image")))


def _parts(owner: Body, name: str, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    parts = []
    for i, value in enumerate(owner.array(name) or []):
        path = f"{owner.path(name)}[{i}]"
        part = Body(value, path)
        part.required("type")
        kind = part.text("type")
        if kind not in kinds:
            raise ProtocolError(
                f"{path}.type must be one of {', '.join(kinds)}",
                f"{path}.type",
                "unsupported_value",
            )
        if kind == "input_image":
            part.refuse("file_id", "files are not kept here; send image_url")
            part.note("detail", "images have the size that the model's files say", "auto")
            part.required("image_url")
            parts.append(image_part(part.text("image_url")))
        else:
            key = "refusal" if kind == "refusal" else "text"
            part.required(key)
            parts.append(text_part(part.text(key) or ""))
            for extra in ("annotations", "logprobs"):
                part.array(extra)  # of an earlier answer's part
        part.finish()
        owner.notes.extend(part.notes)
    return parts
