"""Ollama's paths: /api/chat, /api/generate, /api/embed and what tells of models."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from headrace import version
from headrace.llm.outputs import RequestOutput
from headrace.server.endpoint import Call
from headrace.server.errors import OLLAMA, ApiError
from headrace.server.generation import (
    Update,
    answer_values,
    increments,
    note_headers,
    open_chat,
    pooled,
    update_values,
    whole,
)
from headrace.server.models import Target
from headrace.server.ollama.answer import AnswerBuilder
from headrace.server.ollama.cards import running, shown, tags
from headrace.server.ollama.embedding import (
    EmbedRequest,
    read_embed,
    read_old_embedding,
    read_shown,
)
from headrace.server.ollama.request import (
    OllamaRequest,
    read_ollama_chat,
    read_ollama_generate,
)
from headrace.server.replies import EventStream, Writer, json_bytes, json_reply

_LINES = {"content-type": "application/x-ndjson"}
_LATEST = ":latest"


async def ollama_chat(call: Call) -> ASGIApp:
    return await _answer(call, await call.read(read_ollama_chat), chat=True)


async def ollama_generate(call: Call) -> ASGIApp:
    return await _answer(call, await call.read(read_ollama_generate), chat=False)


async def ollama_embed(call: Call) -> ASGIApp:
    started = time.perf_counter_ns()
    request = await call.read(read_embed)
    target = _find(call, request.model)
    outputs = await _embeddings(call, target, request)
    vectors = [output.outputs.embedding for output in outputs]
    answer = {
        "model": target.name,
        "embeddings": vectors,
        "total_duration": time.perf_counter_ns() - started,
        "load_duration": 0,
        "prompt_eval_count": sum(len(output.prompt_token_ids) for output in outputs),
    }
    values = sum(map(len, vectors))
    return await call.reply(lambda: answer, values, note_headers(request.notes))


async def ollama_embeddings(call: Call) -> ASGIApp:
    """Ollama's older path: one prompt, one embedding."""
    request = await call.read(read_old_embedding)
    outputs = await _embeddings(call, _find(call, request.model), request)
    embedding = outputs[0].outputs.embedding if outputs else []
    headers = note_headers(request.notes)
    return await call.reply(lambda: {"embedding": embedding}, len(embedding), headers)


async def ollama_tags(call: Call) -> ASGIApp:
    models = call.state.models.models
    return json_reply({"models": [tag for model in models for tag in tags(model)]})


async def ollama_ps(call: Call) -> ASGIApp:
    return json_reply({"models": [running(model) for model in call.state.models.models]})


async def ollama_show(call: Call) -> ASGIApp:
    return json_reply(shown(_find(call, await call.read(read_shown))))


async def ollama_version(call: Call) -> ASGIApp:
    return json_reply({"version": version()})


async def ollama_refused(call: Call) -> ASGIApp:
    """For what changes ollama's store of models."""
    raise ApiError(
        f"{call.http.url.path} is not supported: models are folders here, which `headrace serve` "
        "names or POST /v1/models/load loads",
        code="unsupported_path",
    )


async def _answer(call: Call, request: OllamaRequest, chat: bool) -> ASGIApp:
    target = _find(call, request.model)
    asked = request.chat
    builder = AnswerBuilder(
        target.name,
        chat,
        top_logprobs=(asked.params.logprobs or 0) if asked is not None else 0,
        tokenizer=target.model.llm.get_tokenizer(),
    )
    if asked is None:
        return json_reply(builder.loaded(), headers=note_headers(request.notes))
    requests = await open_chat(call, asked, target)
    if request.stream:
        pieces = _pieces(call, builder, await increments(call, target, requests))
        headers = {**_LINES, **note_headers(request.notes, requests)}
        return EventStream(pieces, call.state.config.send_seconds, _failed, headers)
    outputs = await whole(call, target, requests)
    headers = note_headers(request.notes, requests)

    def answer() -> dict[str, Any]:
        for output in outputs:
            builder.feed(output)
        return builder.whole()

    return await call.reply(answer, answer_values(outputs, asked.params), headers)


async def _pieces(
    call: Call, builder: AnswerBuilder, updates: AsyncIterator[Update]
) -> AsyncIterator[bytes]:
    def told(output: RequestOutput, write: Writer) -> bytes:
        piece = builder.feed(output)
        return b"" if piece is None else _line(piece, write)

    async for _, update in updates:
        data = await call.written(partial(told, update), update_values(update))
        if data:
            yield data
    yield _line(builder.last())


def _line(value: Any, write: Writer = json_bytes) -> bytes:
    return write(value) + b"\n"


def _failed(error: ApiError) -> bytes:
    return _line(error.body(OLLAMA))


async def _embeddings(call: Call, target: Target, request: EmbedRequest) -> Sequence[Any]:
    """Of length 1, as ollama's are."""
    if not request.inputs:
        return []

    def start() -> Awaitable[Sequence[Any]]:
        found: Awaitable[Sequence[Any]] = target.model.llm.embed(
            request.inputs,
            dimensions=request.dimensions,
            normalize=True,
            truncate_prompt_tokens=-1 if request.truncate else None,
            lora_request=target.adapter,
        )
        return found

    return await pooled(call, target, request.inputs, start)


def _find(call: Call, name: str | None) -> Target:
    """Ollama's clients may put a tag behind the name. Raises ApiError (404)."""
    models = call.state.models
    bare = (name or "").removesuffix(_LATEST)
    if bare != (name or "") and not any(
        name in (*model.names, *model.adapters) for model in models.models
    ):
        return models.find(bare)
    return models.find(name)
