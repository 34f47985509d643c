"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from starlette.types import ASGIApp

from headrace.server.anthropic.answer import Event, MessageBuilder
from headrace.server.anthropic.request import read_anthropic
from headrace.server.api.tokens import conversation_ids
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.generation import Update, answer_id, increments, note_headers, open_chat, whole
from headrace.server.replies import EventStream, event, json_reply


async def messages(call: Call) -> ASGIApp:
    request = await call.read(read_anthropic)
    target = call.state.models.find(request.model)
    builder = MessageBuilder(id=answer_id("msg_", None), model=target.name)
    requests = await open_chat(call, request, target)
    if request.stream.wanted:
        events = _events(builder, await increments(call, target, requests))
        headers = note_headers(request.notes, requests)
        return EventStream(events, call.state.config.send_seconds, _failed, headers)
    for output in await whole(call, target, requests):
        _read(builder.feed(output))
    _read(builder.finish())
    headers = note_headers(request.notes, requests)
    return json_reply(builder.message, headers=headers)


async def count_tokens(call: Call) -> ASGIApp:
    request = await call.read(lambda body: read_anthropic(body, counting=True))
    target = call.state.models.find(request.model)
    ids = await conversation_ids(
        call, target, request.messages, request.tools.shown, request.chat_template_kwargs
    )
    return json_reply({"input_tokens": len(ids)}, headers=note_headers(request.notes))


async def _events(builder: MessageBuilder, updates: AsyncIterator[Update]) -> AsyncIterator[bytes]:
    started = False
    async for _, update in updates:
        if not started:
            yield b"".join(map(_written, builder.start(update)))
            started = True
        written = b"".join(map(_written, builder.feed(update)))
        if written:
            yield written
    yield b"".join(map(_written, builder.finish()))


def _written(data: Event) -> bytes:
    return event(data, data["type"])


def _failed(error: ApiError) -> bytes:
    return event(error.body("/v1/messages"), "error")


def _read(events: Iterable[Event]) -> None:
    """Lets the builder build."""
    for _ in events:
        pass
