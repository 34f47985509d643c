"""An AsyncLLM of this process, as answers are made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from headrace.llm.async_llm import AsyncLLM
from headrace.llm.async_stream import OutputUpdates
from headrace.llm.outputs import RequestOutput
from headrace.protocol.chat import ChatRequest
from headrace.protocol.completions import CompletionRequest
from headrace.protocol.errors import ProtocolError
from headrace.text.tokenizer import Tokenizer

T = TypeVar("T")


class LocalEngine:
    """Gives the whole outputs of requests, n for each prompt. The model stays the caller's.

    Raises ProtocolError for a request that the engine can't take.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._llm.get_tokenizer()

    async def chat(self, request: ChatRequest) -> Sequence[RequestOutput]:
        return await _whole(partial(self._llm.chat, **request.call_arguments()))

    async def generate(self, request: CompletionRequest) -> Sequence[RequestOutput]:
        calls = [
            _whole(partial(self._llm.generate, prompt, request.params))
            for prompt in request.call_prompts()
        ]
        return [output for outputs in await all_of(calls) for output in outputs]


async def _whole(start: Callable[[], OutputUpdates]) -> list[RequestOutput]:
    try:
        return await start().results()
    except (TypeError, ValueError) as error:  # of the sampling parameters, or the call's form
        raise ProtocolError(str(error)) from error


async def all_of(calls: Sequence[Awaitable[T]]) -> list[T]:
    """What they give; if one fails, the others end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
