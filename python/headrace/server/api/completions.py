"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import ASGIApp

from headrace.protocol.completion_answer import CompletionStream, completion_answer
from headrace.protocol.completions import read_completion
from headrace.server.endpoint import Call
from headrace.server.generation import (
    Update,
    answer_id,
    answer_values,
    increments,
    note_headers,
    open_completion,
    whole,
)
from headrace.server.replies import EventStream, event
from headrace.server.streams import DONE, failed_event


async def completions(call: Call) -> ASGIApp:
    request = await call.read(read_completion)
    target = call.state.models.find(request.model)
    facts: dict[str, Any] = {
        "id": answer_id("cmpl-", request.request_id),
        "model": target.name,
        "created": int(time.time()),
        "tokenizer": target.model.llm.get_tokenizer(),
    }
    requests = await open_completion(call, request, target)
    if not request.stream.wanted:
        outputs = await whole(call, target, requests)
        headers = note_headers(request.notes, requests)
        values = answer_values(outputs, request.params)
        return await call.reply(
            lambda: completion_answer(request, outputs, **facts), values, headers
        )
    updates = await increments(call, target, requests)
    headers = note_headers(request.notes, requests)
    events = _events(CompletionStream(request, **facts), updates)
    return EventStream(events, call.state.config.send_seconds, failed_event, headers)


async def _events(stream: CompletionStream, updates: AsyncIterator[Update]) -> AsyncIterator[bytes]:
    async for place, update in updates:
        pieces = stream.pieces(place, update)
        if pieces:
            yield b"".join(map(event, pieces))
    last = stream.last_piece()
    if last is not None:
        yield event(last)
    yield DONE
