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
from typing import Protocol, TypeVar

from headrace import native
from headrace.errors import EngineError
from headrace.llm.output_kinds import OutputKinds
from headrace.llm.outputs import RequestOutput
from headrace.llm.requests.adapters import AdaptersBusy
from headrace.llm.requests.collector import Collector
from headrace.llm.requests.constraints import Constraints
from headrace.llm.requests.output_processor import OutputProcessor
from headrace.llm.requests.planner import RequestPlanner
from headrace.llm.requests.preparation import (
    Job,
    PreparedRequest,
    RequestFacts,
    constrain,
    is_guided,
    new_facts,
    prepare,
    takes_grammars,
    text_size,
)
from headrace.llm.requests.registry import Registry
from headrace.llm.requests.session import ModelSession, request_errors
from headrace.native.queue import watch
from headrace.native.wakeup import Watch
from headrace.options.lora import LoRARequest
from headrace.options.output_kind import RequestOutputKind
from headrace.text.output_text import StopStrings

T = TypeVar("T")
_TEXT_THREADS = 2
_LONG_TEXT = 1 << 16  # characters
_MADE_ON_LOOP = 1 << 8  # log-probabilities of an update; more are made into objects by a thread
_GRAMMAR_THREADS = 8  # most of what they do is to wait


class Running(Protocol):
    """What has begun: a request, or a beam search."""

    request_id: str

    def abort(self) -> None: ...


class AsyncRunner:
    """What the requests of one AsyncLLM share. Any thread and any event loop may use it."""

    def __init__(self, session: ModelSession, planner: RequestPlanner, registry: Registry) -> None:
        self.session = session
        self.planner = planner
        self.registry = registry
        self._lock = threading.RLock()  # again by a stream that is collected meanwhile
        self._streams: weakref.WeakValueDictionary[str, Running] = weakref.WeakValueDictionary()
        self._process = os.getpid()
        self._text = ThreadPoolExecutor(_TEXT_THREADS, "headrace-text")
        self._long = ThreadPoolExecutor(1, "headrace-long-text")
        self._outputs = ThreadPoolExecutor(1, "headrace-outputs")
        self._grammars = ThreadPoolExecutor(_GRAMMAR_THREADS, "headrace-grammar")
        self._adapters = ThreadPoolExecutor(1, "headrace-adapters")
        self._shut_down = False

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child, where none of the threads are."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raises the engine's error in a forked child."""
        if self.is_forked:
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

    def opened(self, stream: Running) -> None:
        with self._lock:
            self._streams.setdefault(stream.request_id, stream)

    def closed(self, stream: Running) -> None:
        with self._lock:
            if self._streams.get(stream.request_id) is stream:
                del self._streams[stream.request_id]

    def streams(self) -> dict[str, Running]:
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
    joined, are the output's. Updates of a reader that is slow are merged: they don't pile up. With
    SamplingParams(output_kind=...), an update has the output so far, or there is one of each.

    Leaving the loop and cancelling its task cancel the request, once nobody holds this object any
    more; `async with` and `aclose` cancel it at once.
    """

    def __init__(
        self,
        runner: AsyncRunner,
        job: Job,
        request_id: str,
        planner: RequestPlanner | None = None,
    ) -> None:
        """`request_id`: with n > 1, that of output i has "_i" behind it. `planner`: default: the
        runner's."""
        self.request_id = request_id
        self._planner = runner.planner if planner is None else planner
        self._constraints = Constraints(self._planner)
        self._runner = runner
        self._job = job
        self._kinds = OutputKinds([job.params.output_kind] * job.params.n)
        self._arrival = time.time()
        self._collector = Collector(
            runner.registry,
            [job.params.n],
            raise_on_error=self._planner.args.raise_on_error,
            until_released=False,
        )
        self._ready: deque[RequestOutput] = deque()
        self._watch: Watch | None = None
        self._begun = self._awaited = self._aborted = self._closed = False

    @property
    def notes(self) -> list[str]:
        """What of its schemas is left to the model, once it has begun."""
        return list(self._constraints.notes)

    async def __anext__(self) -> RequestOutput:
        await self._advance(self._job.params.output_kind is RequestOutputKind.FINAL_ONLY)
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
        names = list(self._collector.names)
        if names:
            self._runner.registry.cancel(names)

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
                elif self._collector.live:
                    # Without stop strings nothing is to be done before the end.
                    await self._watched(whole and not self._job.params.stop_strings()).wait()
                    news = await self._news(whole)
                    self._ready.extend((news if whole else self._kinds.of(news)).values())
                if not self._collector.live:
                    self._close()
        except BaseException:
            self._close()
            raise
        finally:
            self._awaited = False

    async def _news(self, whole: bool) -> dict[int, RequestOutput]:
        collect = partial(self._collector.collect, list(self._collector.live), whole)
        if self._takes_long(whole):
            return await self._runner.in_output_thread(collect)
        return collect()

    def _takes_long(self, whole: bool) -> bool:
        """Whether many objects are made of the log-probabilities that are there. A reader that is
        slow finds those of many tokens in one update."""
        logprobs = self._job.params.logprobs
        if self._job.params.prompt_logprobs is not None:
            return True
        if logprobs is None:
            return False
        if whole or logprobs < 0:  # all tokens; the whole vocabulary
            return True
        live = self._collector.live.values()
        tokens = sum(one.queue.generated_length() - one.generated for one in live)
        return tokens * (logprobs + 1) > _MADE_ON_LOOP

    def _watched(self, only_end: bool) -> Watch:
        """Of all outputs, made once: the ends of those that have finished have been told."""
        if self._watch is None or self._watch.loop is not asyncio.get_running_loop():
            self._unwatch()
            self._watch = watch(
                [live.queue for live in self._collector.live.values()], only_end=only_end
            )
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
                self._collector.fail(item.index, item, prepared)
        else:
            for request in prepared:
                await self._launch(request)
        self._ready.extend(self._collector.collect(()).values())  # failures

    async def _prepared(self, facts: list[RequestFacts]) -> list[PreparedRequest] | Exception:
        """Or the exception that the prompt fails with. Raises those of the sampling parameters."""
        runner, params, constraints = self._runner, self._job.params, self._constraints
        if is_guided(params):
            await runner.in_grammar_thread(partial(constraints.of, params))
        try:
            size = text_size(self._job.original)
            requests = await runner.in_text_thread(partial(self._read, facts), size)
            finish = partial(constrain, requests, params, constraints)
            if takes_grammars(requests, params):
                await runner.in_grammar_thread(finish)
            else:
                finish()
        except request_errors() as error:
            return error
        return requests

    def _read(self, facts: list[RequestFacts]) -> list[PreparedRequest]:
        strings = tuple(self._job.params.stop_strings())
        stops = StopStrings(strings) if strings else None
        return prepare(self._job, facts, self._planner, stops)

    async def _launch(self, request: PreparedRequest) -> None:
        """Submits a request, or notes why it failed."""
        try:
            handle = await self._submit(request)
        except request_errors() as error:
            self._collector.forget(request.facts.request_id)
            self._collector.fail(request.facts.index, request.facts, error)
        else:
            live = OutputProcessor(request, handle, self._planner)
            self._collector.add(request.facts.index, live)

    async def _submit(self, request: PreparedRequest) -> native.Request:
        registry, name = self._runner.registry, request.facts.request_id
        if self._aborted:
            raise EngineError("the request was aborted before it ran", 499)
        self._collector.reserve(name)
        while True:
            try:
                return self._runner.session.submit(request)
            except AdaptersBusy as busy:
                await self._runner.wait_for_adapter(busy.lora, name)
                registry.check_wanted(name)

    def _close(self) -> None:
        if not self._closed and not self._runner.is_forked:  # the parent's goes on
            self._closed = True
            self._runner.closed(self)
            self._collector.cancel()
            self._unwatch()
            self._collector.tell_failures()
