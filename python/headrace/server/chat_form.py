"""Requests of other protocols, read as bodies of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.protocol.chat import ChatRequest, read_chat
from headrace.protocol.errors import ProtocolError


def read_chat_form(form: Mapping[str, Any], names: Mapping[str, str]) -> ChatRequest:
    """The request that the chat body `form` describes; None is a field that isn't there.

    names: what the fields of `form` are called in the client's protocol, for errors.
    """
    try:
        return read_chat({name: value for name, value in form.items() if value is not None})
    except ProtocolError as error:
        param = error.param or ""
        for own, client in names.items():
            if param == own or param.startswith((f"{own}.", f"{own}[")):
                raise ProtocolError(
                    str(error).replace(own, client, 1), client, error.code, error.status
                ) from None
        raise


def tool_form(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {
        "type": "function",
        "function": {key: value for key, value in function.items() if value is not None},
    }


def call_form(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_part(address: str | None) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


def joined_parts(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A string, if they are texts alone."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts
