"""POST /v1/embeddings, /v1/rerank and /v1/score."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from starlette.types import ASGIApp

from headrace.protocol.pooling import (
    RerankRequest,
    embedding_answer,
    read_embedding,
    read_rerank,
    read_score,
    rerank_answer,
    score_answer,
)
from headrace.server.endpoint import Call
from headrace.server.generation import answer_id, pooled
from headrace.server.models import Target
from headrace.server.replies import json_reply


async def embeddings(call: Call) -> ASGIApp:
    request = await call.read(read_embedding)
    target = call.state.models.find(request.model)

    def start() -> Awaitable[Sequence[Any]]:
        found: Awaitable[Sequence[Any]] = target.model.llm.embed(
            request.inputs,
            prompt_name=request.prompt_name,
            dimensions=request.dimensions,
            truncate_prompt_tokens=request.truncate_prompt_tokens,
            lora_request=target.adapter,
        )
        return found

    outputs = await pooled(call, target, request.inputs, start)
    # A thousand embeddings are megabytes of JSON.
    values = sum(len(output.outputs.embedding) for output in outputs)
    return await call.reply(lambda: embedding_answer(request, outputs, target.name), values)


async def rerank(call: Call) -> ASGIApp:
    request = await call.read(read_rerank)
    target = call.state.models.find(request.model)
    outputs = await _scores(call, request, target)
    return json_reply(rerank_answer(request, outputs, target.name, answer_id("rerank-", None)))


async def score(call: Call) -> ASGIApp:
    request = await call.read(read_score)
    target = call.state.models.find(request.model)
    return json_reply(score_answer(await _scores(call, request, target), target.name))


async def _scores(call: Call, request: RerankRequest, target: Target) -> Sequence[Any]:
    def start() -> Awaitable[Sequence[Any]]:
        found: Awaitable[Sequence[Any]] = target.model.llm.score(
            request.query,
            request.documents,
            instruction=request.instruction,
            truncate_prompt_tokens=request.truncate_prompt_tokens,
            lora_request=target.adapter,
        )
        return found

    return await pooled(call, target, (request.query, request.documents), start)
