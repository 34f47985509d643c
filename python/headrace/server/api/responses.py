"""POST /v1/responses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from headrace.llm.outputs import RequestOutput
from headrace.server.api.tokens import conversation_ids
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.generation import (
    Update,
    answer_id,
    answer_values,
    increments,
    note_headers,
    open_chat,
    update_values,
    whole,
)
from headrace.server.replies import EventStream, Writer, event, json_bytes, json_reply
from headrace.server.responses.answer import Event, ResponseBuilder
from headrace.server.responses.request import read_responses

_LEVELS = 6  # as deep as log-probabilities stand in an event with a whole response
_COPIES = 4  # of them in the last events of a stream


async def responses(call: Call) -> ASGIApp:
    request = await call.read(read_responses)
    target = call.state.models.find(request.chat.model)
    builder = ResponseBuilder(
        request,
        id=answer_id("resp_", None),
        model=target.name,
        created=int(time.time()),
        tokenizer=target.model.llm.get_tokenizer(),
    )
    requests = await open_chat(call, request.chat, target)
    if request.chat.stream.wanted:

        def failed(error: ApiError) -> bytes:
            return _written(builder.fail(error))

        events = _events(call, builder, await increments(call, target, requests))
        headers = note_headers(request.chat.notes, requests)
        return EventStream(events, call.state.config.send_seconds, failed, headers)
    outputs = await whole(call, target, requests)

    def answer() -> dict[str, Any]:
        for output in outputs:
            _read(builder.feed(output))
        _read(builder.finish())
        return builder.response

    values = answer_values(outputs, request.chat.params)
    headers = note_headers(request.chat.notes, requests)
    return await call.reply(answer, values, headers, _LEVELS)


async def input_tokens(call: Call) -> ASGIApp:
    """How many tokens a body of /v1/responses puts before the model."""
    request = (await call.read(read_responses)).chat
    target = call.state.models.find(request.model)
    ids = await conversation_ids(
        call, target, request.messages, request.tools.shown, request.chat_template_kwargs
    )
    answer = {"object": "response.input_tokens", "input_tokens": len(ids)}
    return json_reply(answer, headers=note_headers(request.notes))


async def _events(
    call: Call, builder: ResponseBuilder, updates: AsyncIterator[Update]
) -> AsyncIterator[bytes]:
    def told(update: RequestOutput, write: Writer) -> bytes:
        return _events_of(builder.feed(update), write)

    def ended(write: Writer) -> bytes:
        return _events_of(builder.finish(), write)

    yield _events_of(builder.start())
    values = 0
    async for _, update in updates:
        values += update_values(update)
        data = await call.written(partial(told, update), update_values(update))
        if data:
            yield data
    yield await call.written(ended, _COPIES * values, _LEVELS)


def _events_of(events: Iterable[Event], write: Writer = json_bytes) -> bytes:
    return b"".join(_written(data, write) for data in events)


def _written(data: Event, write: Writer = json_bytes) -> bytes:
    return event(data, data["type"], write)


def _read(events: Iterable[Event]) -> None:
    """Lets the builder build."""
    for _ in events:
        pass
