"""How a request of AsyncLLM is waited for: updates as they come, or the whole answer."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from headrace import native
from headrace.errors import EngineError
from headrace.llm.adapters import AdaptersBusy
from headrace.llm.failures import FailureNotice
from headrace.llm.output_processor import OutputProcessor, failed_output
from headrace.llm.outputs import RequestOutput
from headrace.llm.preparation import (
    Job,
    Notes,
    PreparedRequest,
    RequestFacts,
    constrain,
    new_facts,
    prepare,
    takes_grammars,
    text_size,
)
from headrace.llm.registry import Registry
from headrace.llm.request_params import RequestPlanner
from headrace.llm.session import ModelSession, describe_error, request_errors
from headrace.native.queue import watch
from headrace.native.wakeup import Watch
from headrace.options.lora import LoRARequest
from headrace.text.stop_strings import StopStrings

T = TypeVar("T")
_TEXT_THREADS = 2
_LONG_TEXT = 1 << 16  # characters
_GRAMMAR_THREADS = 8  # most of what they do is to wait


class AsyncRunner:
    """What the requests of one AsyncLLM share. Any thread and any event loop may use it."""

    def __init__(self, session: ModelSession, planner: RequestPlanner, registry: Registry) -> None:
        self.session = session
        self.planner = planner
        self.registry = registry
        self._lock = threading.RLock()  # again by a stream that is collected meanwhile
        self._streams: weakref.WeakValueDictionary[str, OutputUpdates] = (
            weakref.WeakValueDictionary()
        )
        self._process = os.getpid()
        self._text = ThreadPoolExecutor(_TEXT_THREADS, "headrace-text")
        self._long = ThreadPoolExecutor(1, "headrace-long-text")
        self._outputs = ThreadPoolExecutor(1, "headrace-outputs")
        self._grammars = ThreadPoolExecutor(_GRAMMAR_THREADS, "headrace-grammar")
        self._adapters = ThreadPoolExecutor(1, "headrace-adapters")
        self._shut_down = False

    def check_process(self) -> None:
        """Raises the engine's error in a forked child, where none of the threads are."""
        if os.getpid() != self._process:
            self.session.stats()

    async def in_text_thread(self, work: Callable[[], T], size: int) -> T:
        """Templates and tokenizing, while the event loop goes on. Raises EngineError if the LLM
        has been closed.

        size: characters; long texts hold up each other, and no short ones.
        """
        return await self._run(self._long if size > _LONG_TEXT else self._text, work)

    async def in_output_thread(self, work: Callable[[], T]) -> T:
        """What takes long of an output that is there."""
        return await self._run(self._outputs, work)

    async def in_grammar_thread(self, work: Callable[[], T]) -> T:
        """Compiling, which may take long: it holds up no request without grammars."""
        return await self._run(self._grammars, work)

    async def wait_for_adapter(self, lora: LoRARequest, request_id: str) -> None:
        """Until it is loaded, or the request isn't in flight any more. Raises HeadraceError.

        Requests that wait have their turns in order, on a thread of their own: loading takes long.
        """
        wait = partial(self.session.wait_for_adapter, lora, lambda: self.registry.waits(request_id))
        await self._run(self._adapters, wait)

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            running = asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError:
            if not self._shut_down:
                raise
            raise EngineError("the LLM has been closed", 500) from None
        return await running

    def opened(self, stream: OutputUpdates) -> None:
        with self._lock:
            self._streams.setdefault(stream.request_id, stream)

    def closed(self, stream: OutputUpdates) -> None:
        with self._lock:
            if self._streams.get(stream.request_id) is stream:
                del self._streams[stream.request_id]

    def streams(self) -> dict[str, OutputUpdates]:
        """Those that have begun and not ended, by request id."""
        with self._lock:
            return dict(self._streams)

    def shut_down(self) -> None:
        self._shut_down = True
        for threads in (self._text, self._long, self._outputs, self._grammars, self._adapters):
            threads.shutdown(wait=False)


class OutputUpdates(AsyncIterator[RequestOutput]):
    """One request of AsyncLLM: `async for update in ...`, or `await ....result()`.

    It begins when it is first awaited. Each update has what is new of one of the request's n
    outputs (`update.outputs.index`); the last of an output has finished=True, and its texts,
    joined, are the output's. Updates of a reader that is slow are merged: they don't pile up.

    Leaving the loop and cancelling its task cancel the request, once nobody holds this object any
    more; `async with` and `aclose` cancel it at once.
    """

    def __init__(self, runner: AsyncRunner, job: Job, request_id: str) -> None:
        """`request_id`: with n > 1, that of output i has "_i" behind it."""
        self.request_id = request_id
        self.notes: Notes = []  # what is left to the model, once it has begun
        self._runner = runner
        self._job = job
        self._arrival = time.time()
        self._names: set[str] = set()  # in the registry
        self._live: list[OutputProcessor] = []
        self._ready: deque[RequestOutput] = deque()
        self._watch: Watch | None = None
        self._failures = FailureNotice([job.params.n])
        self._begun = self._awaited = self._aborted = self._closed = False

    async def __anext__(self) -> RequestOutput:
        await self._advance(whole=False)
        if self._ready:
            return self._ready.popleft()
        raise StopAsyncIteration

    async def results(self) -> list[RequestOutput]:
        """The whole answers, in order of their index: n of them."""
        if self._begun:
            raise RuntimeError("its updates are being read already: join those")
        done: list[RequestOutput] = []
        while not self._closed:
            await self._advance(whole=True)
            done.extend(self._ready)
            self._ready.clear()
        return sorted(done, key=lambda output: output.outputs.index)

    async def result(self) -> RequestOutput:
        """The whole answer. Raises ValueError for n > 1: see `results`."""
        if self._job.params.n > 1:
            raise ValueError(f"n is {self._job.params.n}: `results` gives a list of as many")
        return (await self.results())[0]

    def abort(self) -> None:
        """Ends it, from any thread: its last update says so and has what was generated."""
        self._aborted = True
        if self._names:
            self._runner.registry.cancel(list(self._names))

    async def aclose(self) -> None:
        """Cancels it, if it still runs. Idempotent."""
        self._close()

    async def __aenter__(self) -> OutputUpdates:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self._close()

    async def _advance(self, whole: bool) -> None:
        """Until there is an update, or nothing is to come. Exceptions cancel the request."""
        if self._awaited:
            raise RuntimeError("another task awaits this request already")
        self._awaited = True
        try:
            while not (self._ready or self._closed):
                if not self._begun:
                    await self._begin()
                elif self._live:
                    # Without stop strings nothing is to be done before the end.
                    await self._watched(whole and not self._job.params.stop_strings()).wait()
                    if whole and self._tells_logprobs():
                        await self._runner.in_output_thread(partial(self._collect, whole))
                    else:
                        self._collect(whole)
                if not self._live:
                    self._close()
        except BaseException:
            self._close()
            raise
        finally:
            self._awaited = False

    def _tells_logprobs(self) -> bool:
        """Which makes many objects of a whole output."""
        params = self._job.params
        return params.logprobs is not None or params.prompt_logprobs is not None

    def _watched(self, only_end: bool) -> Watch:
        """Of all outputs, made once: the ends of those that have finished have been told."""
        if self._watch is None or self._watch.loop is not asyncio.get_running_loop():
            self._unwatch()
            self._watch = watch([live.queue for live in self._live], only_end=only_end)
        return self._watch

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def _begin(self) -> None:
        self._begun = True
        self._runner.check_process()
        self._runner.opened(self)
        facts = new_facts(self._job, self._arrival)
        prepared: list[PreparedRequest] | Exception
        try:
            loading = self._job.begin()
            if loading is not None:
                await loading.finished()
            prepared = await self._prepared(facts)
        except EngineError as error:
            prepared = error
        if isinstance(prepared, Exception):
            for item in facts:
                self._fail(item, prepared)
            return
        for request in prepared:
            try:
                handle = await self._submit(request)
            except request_errors() as error:
                self._forget(request.facts.request_id)
                self._fail(request.facts, error)
            else:
                self._live.append(OutputProcessor(request, handle, self._runner.planner))

    async def _prepared(self, facts: list[RequestFacts]) -> list[PreparedRequest] | Exception:
        """Or the exception that the prompt fails with. Raises those of the sampling parameters."""
        runner, params = self._runner, self._job.params
        own = None
        if params.guided_decoding is not None:
            compile_own = partial(runner.planner.constraint, params, self.notes)
            own = await runner.in_grammar_thread(compile_own)
        try:
            size = text_size(self._job.original)
            requests = await runner.in_text_thread(partial(self._read, facts), size)
            if takes_grammars(requests):
                finish = partial(constrain, requests, own, runner.planner)
                self.notes += await runner.in_grammar_thread(finish)
            else:
                constrain(requests, own, runner.planner)
        except request_errors() as error:
            return error
        return requests

    def _read(self, facts: list[RequestFacts]) -> list[PreparedRequest]:
        strings = tuple(self._job.params.stop_strings())
        stops = StopStrings(strings) if strings else None
        return prepare(self._job, facts, self._runner.planner, stops)

    async def _submit(self, request: PreparedRequest) -> native.Request:
        registry, name = self._runner.registry, request.facts.request_id
        if self._aborted:
            raise EngineError("the request was aborted before it ran", 499)
        registry.reserve(name, self._names)
        while True:
            try:
                handle = self._runner.session.submit(request)
            except AdaptersBusy as busy:
                await self._runner.wait_for_adapter(busy.lora, name)
                registry.check_wanted(name)
            else:
                registry.submitted(name, handle)
                return handle

    def _forget(self, name: str) -> None:
        """Cancels it if it still runs. Not its own, if `reserve` refused it."""
        if name in self._names:
            self._names.discard(name)
            self._runner.registry.withdraw([name])

    def _fail(self, facts: RequestFacts, error: Exception) -> None:
        code, message = describe_error(error)
        if self._runner.planner.args.raise_on_error:
            raise EngineError(message, code) from error
        self._add(failed_output(facts, code, message))

    def _collect(self, whole: bool) -> None:
        for live in list(self._live):
            while not live.released and (output := live.queue.get_nowait()) is not None:
                live.absorb(output)
            if whole and not live.finished:
                continue
            update = live.take()
            if live.finished and live in self._live:
                self._live.remove(live)
                self._forget(live.facts.request_id)
            if update is not None:
                if live.failed and self._runner.planner.args.raise_on_error:
                    raise EngineError(update.error_msg or "", update.error_code)
                self._add(update)

    def _add(self, update: RequestOutput) -> None:
        self._ready.append(update)
        self._failures.note({update.outputs.index: update})

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._runner.closed(self)
            self._runner.registry.withdraw(self._names)
            self._names.clear()
            self._live.clear()
            self._unwatch()
            self._failures.tell()
