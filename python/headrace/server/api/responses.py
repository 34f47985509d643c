"""POST /v1/responses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable

from starlette.types import ASGIApp

from headrace.server.api.tokens import conversation_ids
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.generation import Update, answer_id, increments, note_headers, open_chat, whole
from headrace.server.replies import EventStream, event, json_reply
from headrace.server.responses.answer import Event, ResponseBuilder
from headrace.server.responses.request import read_responses


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

        events = _events(builder, await increments(call, target, requests))
        headers = note_headers(request.chat.notes, requests)
        return EventStream(events, call.state.config.send_seconds, failed, headers)
    for output in await whole(call, target, requests):
        _read(builder.feed(output))
    _read(builder.finish())
    headers = note_headers(request.chat.notes, requests)
    return json_reply(builder.response, headers=headers)


async def input_tokens(call: Call) -> ASGIApp:
    """How many tokens a body of /v1/responses puts before the model."""
    request = read_responses(call.body).chat
    target = call.state.models.find(request.model)
    ids = await conversation_ids(
        call, target, request.messages, request.tools.shown, request.chat_template_kwargs
    )
    answer = {"object": "response.input_tokens", "input_tokens": len(ids)}
    return json_reply(answer, headers=note_headers(request.notes))


async def _events(builder: ResponseBuilder, updates: AsyncIterator[Update]) -> AsyncIterator[bytes]:
    yield b"".join(map(_written, builder.start()))
    async for _, update in updates:
        written = b"".join(map(_written, builder.feed(update)))
        if written:
            yield written
    yield b"".join(map(_written, builder.finish()))


def _written(data: Event) -> bytes:
    return event(data, data["type"])


def _read(events: Iterable[Event]) -> None:
    """Lets the builder build."""
    for _ in events:
        pass
