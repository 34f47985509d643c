"""Bodies of /api/chat and /api/generate, made into requests of a chat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.chat import ChatRequest
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted
from headrace.server.chat_form import read_chat_form
from headrace.server.ollama.messages import read_conversation, shown_content
from headrace.server.ollama.options import OPTION_NAMES, read_options

_NAMES = {
    **OPTION_NAMES,
    "response_format.json_schema": "format",
    "response_format": "format",
    "reasoning_effort": "think",
}
_LEVELS = {"low": "low", "medium": "medium", "high": "high", "max": "xhigh"}
_UNLOADING = (
    "0 with nothing to answer asks to unload the model; POST /v1/models/unload does that for who "
    "has an admin key"
)


@dataclass(slots=True)
class OllamaRequest:
    """chat: None if there is nothing to answer: the model is to be loaded, which it is already.

    stream: the answer comes in pieces. notes: fields that have no effect, a sentence each.
    """

    model: str | None
    chat: ChatRequest | None
    stream: bool
    notes: list[str] = field(default_factory=list)


def read_ollama_chat(value: Any) -> OllamaRequest:
    """Each field works, or is noted as one without effect, or is refused: ProtocolError."""
    body = Body(value)
    form = _common(body)
    form["messages"] = read_conversation(body)
    form["tools"] = body.array("tools") or None
    return _finished(body, form, bool(form["messages"]))


def read_ollama_generate(value: Any) -> OllamaRequest:
    """The same for /api/generate: the prompt is a user's message, or with `raw` stands alone."""
    body = Body(value)
    form = _common(body)
    prompt, system = body.text("prompt") or "", body.text("system")
    content = shown_content(body, prompt)
    body.refuse("suffix", "the engine goes on from the end of a prompt only", "")
    body.refuse("context", "send the conversation to /api/chat", [])
    body.refuse("template", "the model's own template is used; raw: true leaves it out", "")
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if body.flag("raw"):
        _check_raw(system, content)
        form["disable_chat_template"] = True
    elif system:
        messages.insert(0, {"role": "system", "content": system})
    form["messages"] = messages
    return _finished(body, form, bool(content))


def _common(body: Body) -> dict[str, Any]:
    """The fields of both kinds of body, as those of a chat."""
    form: dict[str, Any] = {
        "model": body.text("model"),
        "stream": body.flag("stream") is not False,
        "logprobs": body.flag("logprobs"),
        "top_logprobs": body.integer("top_logprobs"),
        **read_options(body),
        **_think(body),
        **_format(body),
    }
    body.note("keep_alive", "models stay until they are unloaded", -1)
    body.note("truncate", "a conversation that is too long is an error", False)
    body.note("shift", "an answer ends where the context does", False)
    return form


def _finished(body: Body, form: dict[str, Any], asks: bool) -> OllamaRequest:
    body.finish()
    if asks:
        chat = read_chat_form(form, _NAMES)
        return OllamaRequest(chat.model, chat, form["stream"], [*body.notes, *chat.notes])
    if body.take("keep_alive") in (0, "0", "0s"):
        raise ProtocolError(f"keep_alive: {_UNLOADING}", "keep_alive", "unsupported_value")
    return OllamaRequest(form["model"], None, form["stream"], body.notes)


def _check_raw(system: str | None, content: Any) -> None:
    for name, given in (("system", system), ("images", not isinstance(content, str))):
        if given:
            raise ProtocolError(
                f"{name}: raw leaves out the chat template, which would show it",
                name,
                "unsupported_value",
            )


def _think(body: Body) -> dict[str, Any]:
    value = body.take("think")
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"enable_thinking": value}
    if not isinstance(value, str) or value not in _LEVELS:
        raise ProtocolError(
            f"think must be true, false, {', '.join(_LEVELS)}, got {quoted(value)}", "think"
        )
    return {"enable_thinking": True, "reasoning_effort": _LEVELS[value]}


def _format(body: Body) -> dict[str, Any]:
    value = body.take("format")
    if value in (None, ""):
        return {}
    if value == "json":
        return {"response_format": {"type": "json_object"}}
    if not isinstance(value, dict):
        raise ProtocolError(
            f"format must be 'json' or a JSON schema, got {quoted(value)}", "format", "invalid_type"
        )
    described = {"name": "output", "schema": value}
    return {"response_format": {"type": "json_schema", "json_schema": described}}
