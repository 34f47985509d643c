"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from headrace.llm.outputs import RequestOutput
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
    update_values,
    whole,
)
from headrace.server.replies import EventStream, Writer, event, events
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
    stream = _events(call, CompletionStream(request, **facts), updates)
    return EventStream(stream, call.state.config.send_seconds, failed_event, headers)


async def _events(
    call: Call, stream: CompletionStream, updates: AsyncIterator[Update]
) -> AsyncIterator[bytes]:
    def told(place: int, output: RequestOutput, write: Writer) -> bytes:
        return events(stream.pieces(place, output), write)

    async for place, update in updates:
        data = await call.written(partial(told, place, update), update_values(update))
        if data:
            yield data
    last = stream.last_piece()
    if last is not None:
        yield event(last)
    yield DONE
