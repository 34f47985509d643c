"""The requests of one call of LLM: submitted together, collected as output comes."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from headrace import native
from headrace.errors import EngineError
from headrace.llm.adapters import AdaptersBusy
from headrace.llm.failures import FailureNotice
from headrace.llm.output_processor import OutputProcessor, failed_output
from headrace.llm.outputs import RequestOutput
from headrace.llm.preparation import (
    Job,
    PreparedRequest,
    RequestFacts,
    constrain,
    new_facts,
    prepare,
)
from headrace.llm.registry import Registry
from headrace.llm.request_params import RequestPlanner
from headrace.llm.session import ModelSession, describe_error, request_errors
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import SamplingParams
from headrace.text.stop_strings import StopStrings

_JOBS_AHEAD = 8  # whose images and clips are loaded meanwhile
_MOST_PIXELS = 1 << 30  # bytes of these in requests that run; beyond, prompts wait for some to end
_ADAPTER_SECONDS = 0.01  # between looks at adapters that other calls use


class RequestGroup:
    """The requests of one call, in order: n for each job. Belongs to one thread at a time."""

    def __init__(
        self,
        session: ModelSession,
        planner: RequestPlanner,
        registry: Registry,
        jobs: Sequence[Job],
    ) -> None:
        self._session = session
        self._planner = planner
        self._registry = registry
        self._jobs = jobs
        self._selector = native.Selector()
        self._running: dict[int, OutputProcessor] = {}
        self._deferred: list[tuple[int, PreparedRequest]] = []  # wait for an adapter's place
        self._freed = False  # a request has ended since they were tried
        self._names: set[str] = set()  # of the requests in flight
        self._compiled: tuple[SamplingParams, Any] | None = None  # the last constraint, and whose
        self._failures: dict[int, RequestOutput] = {}  # not yet given to the caller
        self._unsent: deque[tuple[int, Job]] = deque()
        self._pixels: dict[int, int] = {}  # bytes of images and clips, by place in the call
        self._all_pixels = 0
        self._arrival = time.time()
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self.total = sum(job.params.n for job in jobs)
        self.failures = FailureNotice([job.params.n for job in jobs])
        self.input_tokens = 0  # of prompts that have been computed, without what the cache held
        self.output_tokens = 0

    @property
    def running(self) -> bool:
        """Whether requests of this call are in flight."""
        return bool(self._running or self._deferred or self._unsent)

    @property
    def pending(self) -> bool:
        """Whether there is more to collect."""
        return bool(self.running or self._failures)

    def start(self) -> None:
        """Submits everything; the engine starts with the first while the rest is tokenized."""
        tag = 0
        for job in self._jobs:
            self._unsent.append((tag, job))
            tag += job.params.n
        self._send()

    def _send(self) -> None:
        """Submits what is left, as far as there is room for its images and clips."""
        while self._unsent and self._all_pixels < _MOST_PIXELS:
            for _, later in islice(self._unsent, _JOBS_AHEAD):
                later.begin()
            tag, job = self._unsent.popleft()
            strings = tuple(job.params.stop_strings())
            if strings and strings not in self._stops:
                self._stops[strings] = StopStrings(strings)
            self._submit(job, tag, self._arrival, self._stops.get(strings))

    def collect(self, timeout: float | None = None) -> list[tuple[int, OutputProcessor]]:
        """Waits for output and takes it; the requests that got some, by place in the call."""
        changed: list[tuple[int, OutputProcessor]] = []
        self._send()
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
        for job in self._jobs:
            job.drop()
        self._registry.withdraw(self._names)
        for tag in self._running:
            self._selector.remove(tag)
        self._running.clear()
        self._deferred.clear()
        self._unsent.clear()
        self._pixels.clear()
        self._all_pixels = 0
        self._names.clear()

    def _drop(self, tag: int, live: OutputProcessor) -> None:
        self._selector.remove(tag)
        self._registry.remove(live.facts.request_id)
        self._names.discard(live.facts.request_id)
        del self._running[tag]
        self._all_pixels -= self._pixels.pop(tag, 0)
        self._freed = True

    def _submit(self, job: Job, tag: int, arrival: float, stops: StopStrings | None) -> None:
        facts = new_facts(job, arrival)
        try:
            requests = prepare(job, facts, self._planner, stops)
            notes = constrain(requests, self._constraint(job.params), self._planner)
        except request_errors() as error:
            for i, item in enumerate(facts):
                self._fail(tag + i, item, error)
            return
        self._tell(notes)
        for i, request in enumerate(requests):
            try:
                self._registry.reserve(request.facts.request_id, self._names)
            except ValueError as error:
                self._fail(tag + i, request.facts, error)
            else:
                self._launch(tag + i, request)

    def _constraint(self, params: SamplingParams) -> Any:
        if self._compiled is None or self._compiled[0] is not params:
            notes: list[str] = []
            self._compiled = (params, self._planner.constraint(params, notes))
            self._tell(notes)
        return self._compiled[1]

    @staticmethod
    def _tell(notes: list[str]) -> None:
        for note in notes:
            warnings.warn(note, stacklevel=2)

    def _launch(self, tag: int, request: PreparedRequest) -> bool:
        """Submits a request whose id is reserved, or notes why it failed; False: it is deferred."""
        name = request.facts.request_id
        try:
            if request.lora is not None:
                self._session.prepare(request.lora)
                self._registry.check_wanted(name)
            handle = self._session.submit(request)
        except AdaptersBusy:
            self._deferred.append((tag, request))
            return False
        except request_errors() as error:
            self._registry.remove(name)
            self._fail(tag, request.facts, error)
            return True
        self._registry.submitted(name, handle)
        live = OutputProcessor(request, handle, self._planner)
        self._running[tag] = live
        self._pixels[tag] = request.pixel_bytes
        self._all_pixels += request.pixel_bytes
        self._selector.add(live.queue, tag)
        return True

    def _launch_deferred(self) -> None:
        """Tries again what waits, unless nothing of this call has ended since the last time."""
        if not self._deferred or (self._running and not self._freed):
            return
        self._freed = False
        deferred, self._deferred = self._deferred, []
        busy: set[LoRARequest | None] = set()
        for tag, request in deferred:
            if request.lora in busy:
                self._deferred.append((tag, request))
            elif not self._launch(tag, request):
                busy.add(request.lora)

    def _fail(self, tag: int, facts: RequestFacts, error: Exception) -> None:
        code, message = describe_error(error)
        if self._planner.args.raise_on_error:
            raise EngineError(message, code) from error
        self._failures[tag] = failed_output(facts, code, message)
