"""Runs pooled requests, for a thread or for a coroutine that waits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headrace import native
from headrace.errors import EngineError
from headrace.llm.pooling.plan import PoolingJob
from headrace.llm.requests.adapters import AdaptersBusy
from headrace.llm.requests.registry import Registry
from headrace.llm.requests.session import ModelSession, describe_error, http_code, request_errors
from headrace.options.lora import LoRARequest

if TYPE_CHECKING:
    from headrace.llm.async_stream import AsyncRunner


@dataclass(slots=True)
class PooledResult:
    """What became of a job. error_code: 200, or why `values` is empty."""

    request_id: str
    token_ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None


class PooledCall:
    """The requests of one call, in order. Belongs to one thread at a time."""

    def __init__(
        self,
        session: ModelSession,
        registry: Registry,
        jobs: Sequence[PoolingJob],
        lora: LoRARequest | None,
        raise_on_error: bool,
    ) -> None:
        self._session = session
        self._registry = registry
        self._jobs = jobs
        self._lora = lora
        self._raise_on_error = raise_on_error
        self._names: set[str] = set()
        self._ended = False
        self._handles: list[native.Request | None] = []
        self.results: list[PooledResult] = []

    def run(self, note: Callable[[int], None]) -> list[PooledResult]:
        """Waits for all; `note` is told how many prompt tokens each has had. An exception, Ctrl-C
        too, cancels the call."""
        with self._cancelling():
            for job in self._jobs:
                self._submit(job)
            for place, handle in enumerate(self._handles):
                if handle is not None:
                    self._take(place, handle, handle.results().get())
                note(len(self.results[place].token_ids))
        return self.results

    async def run_async(self, runner: AsyncRunner) -> list[PooledResult]:
        """The same for coroutines: the inputs are tokenized, and an adapter waited for, in threads.
        Cancelling it cancels the call."""
        with self._cancelling():
            for job in self._jobs:
                if self._lora is None:
                    await runner.in_text_thread(partial(self._submit, job), 0)
                else:
                    await asyncio.to_thread(self._submit, job)
            for place, handle in enumerate(self._handles):
                if handle is not None:
                    self._take(place, handle, await handle.results().get_async())
        return self.results

    @contextmanager
    def _cancelling(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._ended = True
            self._registry.withdraw(self._names)

    def _submit(self, job: PoolingJob) -> None:
        """`_add`. A coroutine may be cancelled meanwhile: then nothing of it stays."""
        try:
            self._add(job)
        finally:
            if self._ended:
                self._registry.withdraw(self._names)

    def _add(self, job: PoolingJob) -> None:
        """Adds a result, and the request that will fill it unless that has failed."""
        result = PooledResult(str(uuid.uuid4()))
        handle = None
        try:
            self._registry.reserve(result.request_id, self._names)
            result.token_ids, params = job.read()
            self._registry.check_wanted(result.request_id)
            handle = self._launch(result, params)
            self._registry.submitted(result.request_id, handle)
        except request_errors() as error:
            self._registry.remove(result.request_id)
            self._fail(result, *describe_error(error), error)
        self.results.append(result)
        self._handles.append(handle)

    def _launch(self, result: PooledResult, params: native.PoolingParams) -> native.Request:
        """Waits for a place for the adapter, which requests of this call may have."""
        name = result.request_id
        while True:
            if self._lora is not None:
                self._session.wait_for_adapter(self._lora, lambda: self._registry.waits(name))
                self._registry.check_wanted(name)
            try:
                return self._session.submit_pooled(result.token_ids, params, name, self._lora)
            except AdaptersBusy:
                continue

    def _take(self, place: int, handle: native.Request, output: native.Output) -> None:
        result = self.results[place]
        self._registry.remove(result.request_id)
        self._names.discard(result.request_id)
        result.values = output.pooled
        result.cached_tokens = handle.results().stats().cached_tokens
        if output.error_code != "ok":
            self._fail(result, http_code(output.error_code), output.error_message)

    def _fail(
        self, result: PooledResult, code: int, message: str, cause: Exception | None = None
    ) -> None:
        if self._raise_on_error:
            raise EngineError(message, code) from cause
        result.error_code, result.error_msg = code, message
