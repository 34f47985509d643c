"""One call of generate or chat: submits its requests and collects what comes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace import native, runtime
from headrace.errors import EngineError
from headrace.failures import FailureNotice
from headrace.live_request import LiveRequest, RequestFacts, failed_output
from headrace.lora import AdaptersBusy, LoRARequest
from headrace.outputs import RequestOutput
from headrace.progress import Progress
from headrace.prompts import Prompt
from headrace.quoting import quoted
from headrace.request_params import RequestPlanner, check_shared
from headrace.sampling_params import SamplingParams
from headrace.text.stop_strings import StopStrings

_REFRESH_SECONDS = 0.5  # of the progress bar, while nothing comes
_ADAPTER_SECONDS = 0.01  # between looks at adapters that other calls use


@dataclass(slots=True)
class Job:
    """One prompt of a call. `read` makes it ready; its ValueErrors fail this prompt alone."""

    original: Any
    read: Callable[[], Prompt]
    params: SamplingParams
    lora: LoRARequest | None = None


class Registry:
    """The requests in flight of an LLM, by id. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[str, native.Request | None] = {}  # None: not submitted yet

    def add(
        self, request_id: str, submit: Callable[[], native.Request], names: set[str]
    ) -> native.Request:
        """Submits under an id, which is added to `names` before it is in flight.

        Raises ValueError if a request of that id is in flight. AdaptersBusy leaves the id in
        flight, for `resume`; anything else takes it out again.
        """
        with self._lock:
            if request_id in self._handles:
                raise ValueError(f"request_id {quoted(request_id)} is already in use")
            names.add(request_id)
            return self._submit(request_id, submit)

    def resume(self, request_id: str, submit: Callable[[], native.Request]) -> native.Request:
        """Submits what `add` could not. Raises EngineError if it has been cancelled meanwhile."""
        with self._lock:
            if not self._waits(request_id):
                raise EngineError("the request was aborted before it ran", 499)
            return self._submit(request_id, submit)

    def _waits(self, request_id: str) -> bool:
        return request_id in self._handles and self._handles[request_id] is None

    def _submit(self, request_id: str, submit: Callable[[], native.Request]) -> native.Request:
        self._handles[request_id] = None
        try:
            handle = self._handles[request_id] = submit()
        except AdaptersBusy:
            raise
        except BaseException:
            del self._handles[request_id]
            raise
        return handle

    def remove(self, request_id: str) -> None:
        with self._lock:
            self._handles.pop(request_id, None)

    def withdraw(self, request_ids: Iterable[str]) -> None:
        """Cancels and forgets those of them that are in flight."""
        with self._lock:
            handles = [self._handles.pop(name, None) for name in request_ids]
        for handle in handles:
            if handle is not None:
                handle.cancel()

    def ids(self) -> list[str]:
        with self._lock:
            return list(self._handles)

    def cancel(self, request_ids: Sequence[str] | None) -> None:
        """Cancels these, or all; unknown ids are ignored."""
        with self._lock:
            wanted = list(self._handles) if request_ids is None else request_ids
            handles = [self._handles[name] for name in wanted if name in self._handles]
            for name in filter(self._waits, wanted):
                del self._handles[name]
        for handle in handles:
            if handle is not None:
                handle.cancel()


@dataclass(slots=True)
class _Launch:
    """A request of a call, ready to be submitted."""

    tag: int
    facts: RequestFacts
    config: native.GenerationConfig
    stops: StopStrings | None
    lora: LoRARequest | None


class Call:
    """The requests of one call, in order: n for each job. Belongs to one thread at a time."""

    def __init__(
        self,
        session: runtime.ModelSession,
        planner: RequestPlanner,
        registry: Registry,
        jobs: Sequence[Job],
    ) -> None:
        self._session = session
        self._planner = planner
        self._registry = registry
        self._jobs = jobs
        self._selector = native.Selector()
        self._running: dict[int, LiveRequest] = {}
        self._deferred: list[_Launch] = []  # wait for an adapter's place
        self._freed = False  # a request has ended since they were tried
        self._names: set[str] = set()  # of the requests in flight
        self._compiled: tuple[SamplingParams, Any] | None = None  # the last constraint, and whose
        self._failures: dict[int, RequestOutput] = {}  # not yet given to the caller
        self.total = sum(job.params.n for job in jobs)
        self.failures = FailureNotice([job.params.n for job in jobs])
        self.input_tokens = 0  # of prompts that have been computed, without what the cache held
        self.output_tokens = 0

    @property
    def running(self) -> bool:
        """Whether requests of this call are in flight."""
        return bool(self._running or self._deferred)

    @property
    def pending(self) -> bool:
        """Whether there is more to collect."""
        return bool(self.running or self._failures)

    def start(self) -> None:
        """Submits everything; the engine starts with the first while the rest is tokenized."""
        tag = 0
        arrival = time.time()
        stops: dict[tuple[str, ...], StopStrings] = {}
        for job in self._jobs:
            strings = tuple(job.params.stop_strings())
            if strings and strings not in stops:
                stops[strings] = StopStrings(strings)
            self._submit(job, tag, arrival, stops.get(strings))
            tag += job.params.n

    def collect(self, timeout: float | None = None) -> list[tuple[int, LiveRequest]]:
        """Waits for output and takes it; the requests that got some, by place in the call."""
        changed: list[tuple[int, LiveRequest]] = []
        self._launch_deferred()
        if not self._running:  # other calls use all adapters, which nothing here can wait for
            time.sleep(0 if timeout == 0 else _ADAPTER_SECONDS)
            return changed
        for tag in self._selector.wait(timeout):
            live = self._running.get(tag)
            if live is None:
                continue
            before = live.generated
            computed = live.computed_prompt_tokens
            while not live.released and (output := live.queue.get_nowait()) is not None:
                live.absorb(output)
            self.output_tokens += live.generated - before
            self.input_tokens += live.computed_prompt_tokens - computed
            if live.released:
                self._drop(tag, live)
            changed.append((tag, live))
        return changed

    def take_failures(self) -> dict[int, RequestOutput]:
        """Results of the requests that could not be submitted, once each."""
        failures, self._failures = self._failures, {}
        return failures

    def cancel(self) -> None:
        """Cancels what still runs, wherever an exception left it."""
        self._registry.withdraw(self._names)
        for tag in self._running:
            self._selector.remove(tag)
        self._running.clear()
        self._deferred.clear()
        self._names.clear()

    def _drop(self, tag: int, live: LiveRequest) -> None:
        self._selector.remove(tag)
        self._registry.remove(live.facts.request_id)
        self._names.discard(live.facts.request_id)
        del self._running[tag]
        self._freed = True

    def _submit(self, job: Job, tag: int, arrival: float, stops: StopStrings | None) -> None:
        facts = [self._new_facts(job, i, arrival) for i in range(job.params.n)]
        try:
            prompt = job.read()
            for item in facts:
                self._fill(item, prompt)
            plans = self._plan(job.params, prompt, stops)
            constraint = self._constraint(job.params)
        except runtime.request_errors() as error:
            for i, item in enumerate(facts):
                self._fail(tag + i, item, error)
            return
        for i, plan in enumerate(plans):
            facts[i].constraint = constraint
            self._launch(_Launch(tag + i, facts[i], plan, stops, job.lora))

    def _constraint(self, params: SamplingParams) -> Any:
        if self._compiled is None or self._compiled[0] is not params:
            self._compiled = (params, self._planner.constraint(params))
        return self._compiled[1]

    @staticmethod
    def _new_facts(job: Job, index: int, arrival: float) -> RequestFacts:
        return RequestFacts(
            request_id=str(uuid.uuid4()),
            index=index,
            prompt=job.original,
            prompt_token_ids=[],
            params=job.params,
            arrival_time=arrival,
            preprocess_start_time=time.time(),
        )

    @staticmethod
    def _fill(facts: RequestFacts, prompt: Prompt) -> None:
        facts.prompt, facts.prompt_token_ids = prompt.shown, prompt.token_ids
        facts.preprocess_end_time = time.time()
        if prompt.request_id is not None:
            several = facts.params.n > 1
            facts.request_id = (
                f"{prompt.request_id}_{facts.index}" if several else prompt.request_id
            )

    def _plan(
        self, params: SamplingParams, prompt: Prompt, stops: StopStrings | None
    ) -> list[native.GenerationConfig]:
        planner = self._planner
        size = planner.info.vocab_size
        check_shared(params, planner.args, size)
        if stops is not None and planner.tokenizer is None:
            raise ValueError("stop strings need a tokenizer, and the model folder has none")
        ids = prompt.token_ids
        if ids and not (min(ids) >= 0 and max(ids) < size):
            wrong = next(token_id for token_id in ids if not 0 <= token_id < size)
            raise ValueError(f"token id {wrong} is outside of the vocabulary (0..{size - 1})")
        return planner.plan(params, len(ids), prompt.bad_words)

    def _launch(self, launch: _Launch, again: bool = False) -> None:
        """Submits a request, or defers it, or notes why it failed."""
        facts = launch.facts

        def submit() -> native.Request:
            ids = facts.prompt_token_ids
            return self._session.submit(
                ids, launch.config, facts.request_id, facts.constraint, launch.lora
            )

        try:
            if launch.lora is not None:
                self._prepare(launch.lora, facts.request_id if again else None)
            if again:
                handle = self._registry.resume(facts.request_id, submit)
            else:
                handle = self._registry.add(facts.request_id, submit, self._names)
        except AdaptersBusy:
            self._deferred.append(launch)
            return
        except runtime.request_errors() as error:
            self._fail(launch.tag, facts, error)
            return
        ends = self._planner.end_tokens(facts.params)
        live = LiveRequest(facts, handle, self._planner.tokenizer, launch.stops, ends)
        self._running[launch.tag] = live
        self._selector.add(live.queue, launch.tag)

    def _prepare(self, lora: LoRARequest, waiting_id: str | None) -> None:
        """Has the adapter loaded. One that can't be takes the request that waits for it along."""
        try:
            self._session.prepare(lora)
        except BaseException:
            if waiting_id is not None:
                self._registry.remove(waiting_id)
            raise

    def _launch_deferred(self) -> None:
        """Tries again what waits, unless nothing of this call has ended since the last time."""
        if not self._deferred or (self._running and not self._freed):
            return
        self._freed = False
        deferred, self._deferred = self._deferred, []
        busy: set[LoRARequest | None] = set()
        for launch in deferred:
            if launch.lora in busy:
                self._deferred.append(launch)
                continue
            self._launch(launch, again=True)
            if self._deferred and self._deferred[-1] is launch:
                busy.add(launch.lora)

    def _fail(self, tag: int, facts: RequestFacts, error: Exception) -> None:
        code, message = runtime.describe_error(error)
        if self._planner.args.raise_on_error:
            raise EngineError(message, code) from error
        self._failures[tag] = failed_output(facts, code, message)


def run_to_end(call: Call, progress: Progress, raise_on_error: bool) -> list[RequestOutput]:
    """The results of all requests, in order. An exception, Ctrl-C too, cancels the call."""
    results: dict[int, RequestOutput] = {}
    try:
        call.start()
        while call.pending:
            done = call.take_failures()
            for tag, live in call.collect(_REFRESH_SECONDS) if call.running else ():
                if live.released:
                    done[tag] = _result(live, raise_on_error)
            call.failures.note(done)
            results.update(done)
            progress.update(len(done), call.input_tokens, call.output_tokens)
    finally:
        call.cancel()
        progress.close()
    call.failures.tell()
    return [results[tag] for tag in range(call.total)]


def _result(live: LiveRequest, raise_on_error: bool) -> RequestOutput:
    output = live.take()
    if output is None:
        raise RuntimeError(f"request {live.facts.request_id} ended without a result")
    if raise_on_error and live.failed:
        raise EngineError(output.error_msg or "the request failed", output.error_code)
    return output


class OutputStream(Iterator[list[RequestOutput | None]]):
    """The increments of a call: lists as long as the call has outputs, None where nothing is new.

    Its requests run on whether or not it is read. `close`, or dropping it, cancels what still runs.
    """

    def __init__(self, call: Call, progress: Progress, raise_on_error: bool) -> None:
        """Submits the requests of `call`."""
        self._call = call
        self._progress = progress
        self._raise_on_error = raise_on_error
        self._finished: set[int] = set()
        try:
            call.start()
        except BaseException:
            self.close()
            raise

    def __next__(self) -> list[RequestOutput | None]:
        try:
            while self._call.pending:
                news = self._next_news()
                if news:
                    return [news.get(tag) for tag in range(self._call.total)]
        except BaseException:
            self.close()
            raise
        self.close()
        self._call.failures.tell()
        raise StopIteration

    def _next_news(self) -> dict[int, RequestOutput]:
        news = self._call.take_failures()
        if self._call.running:
            # Failures are passed on at once, with whatever else is there already.
            for tag, live in self._call.collect(0 if news else _REFRESH_SECONDS):
                output = None if tag in self._finished else live.take()
                if output is not None:
                    news[tag] = output
                    if self._raise_on_error and live.failed:
                        raise EngineError(output.error_msg or "", output.error_code)
        self._call.failures.note(news)
        done = {tag for tag, output in news.items() if output.finished}
        self._finished |= done
        self._progress.update(len(done), self._call.input_tokens, self._call.output_tokens)
        return news

    def close(self) -> None:
        """Cancels what still runs. Idempotent."""
        self._call.cancel()
        self._progress.close()

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self.close()
