"""An AsyncLLM of this process, as answers are made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from headrace.llm.async_llm import AsyncLLM
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
        return await self._outputs(request)

    async def generate(self, request: CompletionRequest) -> Sequence[RequestOutput]:
        return await self._outputs(request)

    async def _outputs(self, request: ChatRequest | CompletionRequest) -> list[RequestOutput]:
        try:
            started = request.start(self._llm)
            found = await all_of([one.results() for one in started])
        except (TypeError, ValueError) as error:  # of the sampling parameters, or the call's form
            raise ProtocolError(str(error)) from error
        for one in started:  # what of its schemas is left to the model
            request.notes += one.notes
        return [output for outputs in found for output in outputs]


async def all_of(calls: Sequence[Awaitable[T]]) -> list[T]:
    """What they give; if one fails, the others end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
