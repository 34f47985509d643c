"""Requests on their way through the engine."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace import EngineError, HeadraceError, RequestOutput, SamplingParams
from headrace.protocol.chat import ChatRequest
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted, shortened
from headrace.server.endpoint import Call, logger
from headrace.server.errors import ApiError, context_length_error
from headrace.server.limits import check_chat, check_completion
from headrace.server.models import Target

_ANSWER_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
Update = tuple[int, RequestOutput]  # of which prompt, and the increment


async def open_chat(call: Call, request: ChatRequest, target: Target) -> list[Any]:
    """The request, which has a place in the engine now and begins when it is read.

    Raises ApiError and ProtocolError for what the server refuses.
    """
    check_chat(call.state.config, request)
    _log_request(call, request.own_prompt or request.messages, request.params)
    await _enter(call, target)
    return _opened(call, lambda: request.start(target.model.llm, target.adapter))


async def open_completion(call: Call, request: CompletionRequest, target: Target) -> list[Any]:
    """The same for prompts: a request for each."""
    check_completion(call.state.config, request)
    _log_request(call, request.prompts, request.params)
    await _enter(call, target)
    return _opened(call, lambda: request.start(target.model.llm, target.adapter))


async def whole(call: Call, target: Target, requests: list[Any]) -> list[RequestOutput]:
    """The finished outputs, in the order of prompts and indices. Raises ApiError."""
    tasks = [asyncio.ensure_future(request.results()) for request in requests]
    call.held.push_async_callback(_stop, tasks)
    with _engine_errors():
        found = await asyncio.gather(*tasks)
    outputs = [output for one in found for output in one]
    counts = _Counts(call, target)
    try:
        for place, one in enumerate(found):
            for output in one:
                counts.add(place, output)
    finally:
        counts.close()
    return outputs


async def pooled(
    call: Call, target: Target, inputs: Any, start: Callable[[], Awaitable[Sequence[Any]]]
) -> Sequence[Any]:
    """What `start` gives, embeddings or scores, as one request in the engine.

    Raises ApiError, which says which of several inputs has failed.
    """
    _log_request(call, inputs, "pooling")
    await _enter(call, target)
    with _engine_errors():
        outputs = await start()
    tokens = sum(len(output.prompt_token_ids) for output in outputs)
    call.facts["prompt_tokens"] = tokens
    call.state.metrics.tokens(target.name, tokens, 0)
    for place, output in enumerate(outputs):
        if output.error_code != 200:
            where = f"entry {place}: " if len(outputs) > 1 else ""
            message = output.error_msg or "the request has failed"
            raise _failure(output.error_code, where + message)
    return outputs


async def increments(call: Call, target: Target, requests: list[Any]) -> AsyncIterator[Update]:
    """What comes of the requests, in any order; the first increment is there already.

    Raises ApiError, as does the iterator later.
    """
    merged = _tagged(requests[0]) if len(requests) == 1 else _merged(call, requests)
    updates = _checked(call, target, merged)
    try:
        first = await anext(updates)
    except StopAsyncIteration:
        raise ApiError("the engine has given no answer", 500, code="internal_error") from None
    return _chained(first, updates)


def answer_values(outputs: Sequence[RequestOutput], params: SamplingParams) -> int:
    """About how many values an answer has that tells the tokens and their log-probabilities."""
    each = 1 + (0 if params.logprobs is None else params.logprobs + 1)
    prompt = 0 if params.prompt_logprobs is None else params.prompt_logprobs + 1
    return sum(
        len(output.outputs.token_ids) * each + len(output.prompt_token_ids) * prompt
        for output in outputs
    )


def update_values(output: RequestOutput) -> int:
    """How many log-probabilities an update of a stream has."""
    return sum(map(len, output.outputs.logprobs or ()))


def note_headers(notes: Iterable[str], requests: Iterable[Any] = ()) -> dict[str, str]:
    """What a client is told of fields without effect, and of what of its schemas is left to the
    model, which is known of requests that have begun."""
    left = [note for request in requests for note in request.notes]
    text = "; ".join(dict.fromkeys([*notes, *left])).encode("ascii", "replace").decode()
    return {"x-headrace-warnings": shortened(text, 2000)} if text else {}


def _log_request(call: Call, prompt: Any, params: Any) -> None:
    config = call.state.config
    if config.log_requests:
        text = shortened(repr(prompt), max(config.max_log_len, 3))
        logger.info("%s asks %s with %s", call.id, text, shortened(repr(params), 2000))


async def _enter(call: Call, target: Target) -> None:
    """Takes a place in the engine, and keeps the model there."""
    call.facts["model"] = quoted(target.name)
    call.held.enter_context(target.model.used())
    await call.held.enter_async_context(call.state.admission.place())


def _opened(call: Call, start: Callable[[], list[Any]]) -> list[Any]:
    with _engine_errors():
        requests = start()
    for request in requests:
        call.held.push_async_callback(request.aclose)  # ends it, should it still run
    return requests


async def _chained(first: Update, rest: AsyncIterator[Update]) -> AsyncIterator[Update]:
    yield first
    async for update in rest:
        yield update


async def _tagged(stream: AsyncIterator[RequestOutput]) -> AsyncIterator[Update]:
    async for update in stream:
        yield 0, update


async def _merged(call: Call, streams: list[AsyncIterator[RequestOutput]]) -> AsyncIterator[Update]:
    """Increments as they come; a slow reader holds up all streams, which merge theirs then."""
    ready: asyncio.Queue[tuple[int, RequestOutput | BaseException | None]] = asyncio.Queue(1)

    async def read(place: int, stream: AsyncIterator[RequestOutput]) -> None:
        try:
            async for update in stream:
                await ready.put((place, update))
            await ready.put((place, None))
        except Exception as error:
            await ready.put((place, error))

    tasks = [asyncio.ensure_future(read(i, stream)) for i, stream in enumerate(streams)]

    call.held.push_async_callback(_stop, tasks)
    running = len(streams)
    while running:
        place, update = await ready.get()
        if update is None:
            running -= 1
        elif isinstance(update, BaseException):
            raise update
        else:
            yield place, update


async def _stop(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _checked(
    call: Call, target: Target, updates: AsyncIterator[Update]
) -> AsyncIterator[Update]:
    """Raises ApiError for outputs that have failed; counts tokens."""
    counts = _Counts(call, target)
    call.held.callback(counts.close)  # a client that stalls leaves the iterator where it is
    start = time.monotonic()
    try:
        with _engine_errors():
            async for place, update in updates:
                if not counts.generated and update.outputs.token_ids:
                    call.state.metrics.first_token(target.name, time.monotonic() - start)
                counts.add(place, update)
                yield place, update
    finally:
        counts.close()


class _Counts:
    """The tokens of one call, for its line in the log and for metrics."""

    def __init__(self, call: Call, target: Target) -> None:
        self._call = call
        self._target = target
        self._prompts: dict[int, int] = {}
        self._closed = False
        self.generated = 0

    def add(self, place: int, update: RequestOutput) -> None:
        """Raises ApiError for an output that has failed."""
        if update.error_code != 200:
            raise _failure(update.error_code, update.error_msg or "the request has failed")
        if update.outputs.finish_reason == "abort":
            raise ApiError("the server has ended the request", 503, code="aborted")
        known = self._prompts.get(place, 0)
        self._prompts[place] = max(known, len(update.prompt_token_ids))
        self.generated += len(update.outputs.token_ids)

    def close(self) -> None:
        """Idempotent."""
        if self._closed:
            return
        self._closed = True
        prompt = sum(self._prompts.values())
        self._call.facts["prompt_tokens"] = prompt
        self._call.facts["generated_tokens"] = self.generated
        self._call.state.metrics.tokens(self._target.name, prompt, self.generated)


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """What the engine raises, as ApiError."""
    try:
        yield
    except (ValueError, TypeError) as error:  # of the call itself
        if isinstance(error, ProtocolError):
            raise
        raise _failure(400, str(error)) from error
    except (EngineError, HeadraceError) as error:
        raise _failure(getattr(error, "error_code", 500), str(error)) from error


def _failure(status: int, message: str) -> ApiError:
    if status == 499:
        return ApiError("the server has ended the request", 503, code="aborted")
    too_long = context_length_error(message)
    if too_long is not None:
        return too_long
    return ApiError(message, status, code="invalid_argument" if status == 400 else "engine_error")


def answer_id(prefix: str, given: str | None) -> str:
    """The id of an answer; a client may choose what follows the prefix."""
    if given is not None and not _ANSWER_ID.fullmatch(given):
        raise ProtocolError(
            f"request_id must be 1 to 64 letters, digits, '_', '-', '.' and ':', "
            f"got {quoted(given)}",
            "request_id",
        )
    return f"{prefix}{given or uuid.uuid4().hex}"
