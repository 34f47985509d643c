"""What ollama's API tells of models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.server.models import ServedModel, Target
from headrace.server.ollama.answer import time_text

_NEVER = "9999-12-31T23:59:59Z"
_UNITS = ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K"))


def tags(model: ServedModel) -> Iterator[dict[str, Any]]:
    """An entry of /api/tags for each name of the model and of its adapters."""
    for name in model.names:
        yield _tag(model, name, "")
    for name in model.adapters:
        yield _tag(model, name, model.names[0])


def running(model: ServedModel) -> dict[str, Any]:
    """An entry of /api/ps."""
    info = model.llm.model_info
    tag = _tag(model, model.names[0], "")
    del tag["modified_at"]
    return {
        **tag,
        "expires_at": _NEVER,
        "size_vram": 0 if info.device.startswith("cpu") else tag["size"],
        "context_length": info.max_model_len,
    }


def shown(target: Target) -> dict[str, Any]:
    """The answer of /api/show."""
    model, info = target.model, target.model.llm.model_info
    parent = "" if target.adapter is None else model.names[0]
    templates = model.templates()
    facts = {
        "context_length": info.max_model_len,
        "embedding_length": info.hidden_size,
        "block_count": info.num_layers,
        "feed_forward_length": info.intermediate_size,
        "vocab_size": info.vocab_size,
        "attention.head_count": info.num_heads,
        "attention.head_count_kv": info.num_kv_heads,
    }
    return {
        "modelfile": "",
        "parameters": "",
        "template": templates.get("default", ""),
        "details": _details(model, parent),
        "model_info": {
            "general.architecture": info.family,
            "general.parameter_count": info.num_parameters,
            **{f"{info.family}.{name}": value for name, value in facts.items()},
        },
        "capabilities": _capabilities(info, templates.values()),
        "modified_at": time_text(model.created),
    }


def _tag(model: ServedModel, name: str, parent: str) -> dict[str, Any]:
    """The digest stands for the folder: its files are not read for it."""
    return {
        "name": name,
        "model": name,
        "modified_at": time_text(model.created),
        "size": model.llm.model_info.weight_bytes,
        "digest": hashlib.sha256(f"{model.path}\n{name}".encode("utf-8", "replace")).hexdigest(),
        "details": _details(model, parent),
    }


def _details(model: ServedModel, parent: str) -> dict[str, Any]:
    info = model.llm.model_info
    return {
        "parent_model": parent,
        "format": "safetensors",
        "family": info.family,
        "families": [info.family],
        "parameter_size": _size(info.num_parameters),
        "quantization_level": info.quantization or info.dtype,
    }


def _size(count: int) -> str:
    for unit, letter in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}{letter}"
    return str(count)


def _capabilities(info: Any, templates: Iterable[str]) -> list[str]:
    template = "".join(templates)
    known = {
        "completion": info.generates,
        "embedding": not info.generates,
        "vision": info.vision,
        "tools": "tools" in template,
        "thinking": "enable_thinking" in template or "<think>" in template,
    }
    return [name for name, able in known.items() if able]
