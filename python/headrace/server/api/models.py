"""GET /v1/models and /v1/models/{name}; loading and unloading for who has an admin key."""

from __future__ import annotations

import dataclasses
from typing import Any

from starlette.types import ASGIApp

from headrace.options.engine_args import EngineArgs
from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import checked_text
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.models import ServedModel
from headrace.server.replies import json_reply

_OPTIONS = frozenset(item.name for item in dataclasses.fields(EngineArgs)) - {"model"}


async def list_models(call: Call) -> ASGIApp:
    cards = [card for model in call.state.models.models for card in _cards(model)]
    return json_reply({"object": "list", "data": cards})


async def get_model(call: Call) -> ASGIApp:
    name = call.http.path_params["name"]
    model = call.state.models.find(name).model
    return json_reply(next(card for card in _cards(model) if card["id"] == name))


async def load_model(call: Call) -> ASGIApp:
    """{"model": folder or hub id, "served_model_name": name, further options of LLM}."""
    body = Body(call.body)
    path = _text(body, "model")
    name = body.text("served_model_name")
    options = {option: body.take(option) for option in _OPTIONS}
    body.finish()
    given = {option: value for option, value in options.items() if value is not None}
    try:
        model = await call.state.models.load(path, [name] if name else None, **given)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise ApiError(f"the model can't be loaded: {error}", code="load_failed") from error
    return json_reply(_cards(model)[0])


async def unload_model(call: Call) -> ASGIApp:
    """{"model": name}. Answers when the requests that ran have ended."""
    name = _only_text(call, "model")
    await call.state.models.unload(name)
    return json_reply({"id": name, "object": "model", "deleted": True})


async def load_adapter(call: Call) -> ASGIApp:
    """vLLM's: {"lora_name": name, "lora_path": folder}, and base_model_name where there are more
    models than one. The folder is read when a request first names the adapter."""
    body = Body(call.body)
    values = [_text(body, name) for name in ("lora_name", "lora_path")]
    base = body.text("base_model_name")
    body.finish()
    call.state.models.add_adapter(values[0], values[1], base)
    return json_reply({"id": values[0], "object": "model"})


async def unload_adapter(call: Call) -> ASGIApp:
    name = _only_text(call, "lora_name")
    call.state.models.remove_adapter(name)
    return json_reply({"id": name, "object": "model", "deleted": True})


def _only_text(call: Call, name: str) -> str:
    body = Body(call.body)
    value = _text(body, name)
    body.finish()
    return value


def _text(body: Body, name: str) -> str:
    body.required(name)
    value = body.text(name)
    if not value:
        raise ProtocolError(f"{name} must not be empty", name)
    try:
        return checked_text(value, name)
    except ValueError as error:
        raise ProtocolError(str(error), name) from error


def _cards(model: ServedModel) -> list[dict[str, Any]]:
    """OpenAI's fields, vLLM's max_model_len, and what the model can do, in Mistral's words."""
    info = model.llm.model_info
    common = {
        "object": "model",
        "created": model.created,
        "owned_by": "headrace",
        "max_model_len": info.max_model_len,
        "capabilities": {"completion_chat": info.generates, "vision": info.vision},
    }
    own = [{"id": name, **common} for name in model.names]
    return [*own, *({"id": name, **common, "parent": model.names[0]} for name in model.adapters)]
