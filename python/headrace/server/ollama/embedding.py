"""Bodies of /api/embed and /api/embeddings, and of what concerns one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.protocol.body import Body
from headrace.protocol.completions import read_prompts
from headrace.protocol.errors import ProtocolError
from headrace.protocol.pooling import read_positive


@dataclass(slots=True)
class EmbedRequest:
    """inputs: none if the model is only to be loaded. truncate: what is too long loses its end."""

    model: str | None
    inputs: list[Any]
    truncate: bool
    dimensions: int | None
    notes: list[str]


def read_embed(value: Any) -> EmbedRequest:
    """Each field works, or is noted as one without effect, or is refused: ProtocolError."""
    body = Body(value)
    given = body.required("input")
    inputs = [] if given in ("", []) else read_prompts(given, "input")
    if not all(isinstance(text, str) for text in inputs):
        raise ProtocolError("input must be a string or strings", "input", "invalid_type")
    dimensions = read_positive(body, "dimensions")
    return _finished(body, inputs, body.flag("truncate") is not False, dimensions)


def read_old_embedding(value: Any) -> EmbedRequest:
    """The same for /api/embeddings, which has one `prompt`."""
    body = Body(value)
    prompt = body.text("prompt")
    return _finished(body, [prompt] if prompt else [], True, None)


def _finished(
    body: Body, inputs: list[Any], truncate: bool, dimensions: int | None
) -> EmbedRequest:
    body.mapping("options")
    body.note("options", "nothing is sampled", {})
    body.note("keep_alive", "models stay until they are unloaded", -1)
    model = body.text("model")
    body.finish()
    return EmbedRequest(model, inputs, truncate, dimensions, body.notes)


def read_shown(value: Any) -> str | None:
    """The model that a body of /api/show names. Raises ProtocolError."""
    body = Body(value)
    name = body.text("model")
    older = body.text("name")  # what the field was called once
    body.flag("verbose")
    for other in ("system", "template", "options"):
        body.refuse(other, "models are shown as they are", "", {})
    body.finish()
    return name if name is not None else older
