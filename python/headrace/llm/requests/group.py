"""The requests of one call of LLM: submitted together, collected as output comes."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Sequence
from itertools import islice

from headrace import native
from headrace.llm.outputs import RequestOutput
from headrace.llm.requests.adapters import AdaptersBusy
from headrace.llm.requests.collector import Collector
from headrace.llm.requests.constraints import Constraints
from headrace.llm.requests.output_processor import OutputProcessor
from headrace.llm.requests.planner import RequestPlanner
from headrace.llm.requests.preparation import (
    Job,
    PreparedRequest,
    constrain,
    new_facts,
    prepare,
)
from headrace.llm.requests.registry import Registry
from headrace.llm.requests.session import ModelSession, request_errors
from headrace.options.lora import LoRARequest
from headrace.text.output_text import StopStrings

_JOBS_AHEAD = 8  # whose images and clips are loaded meanwhile
_MOST_PIXELS = 1 << 30  # bytes of these in requests that run; beyond, prompts wait for some to end


class RequestGroup:
    """The requests of one call, in order: n for each job. Belongs to one thread at a time."""

    def __init__(
        self,
        session: ModelSession,
        planner: RequestPlanner,
        registry: Registry,
        jobs: Sequence[Job],
        constraints: Constraints,
    ) -> None:
        self._session = session
        self._planner = planner
        self._registry = registry
        self._jobs = jobs
        self._constraints = constraints
        self._selector = native.Selector()
        self._collector = Collector(
            registry,
            [job.params.n for job in jobs],
            raise_on_error=planner.args.raise_on_error,
            until_released=True,
        )
        self._deferred: list[tuple[int, PreparedRequest]] = []  # wait for an adapter's place
        self._freed = False  # a request has ended since they were tried
        self._unsent: deque[tuple[int, Job]] = deque()
        self._pixels: dict[int, int] = {}  # bytes of images and clips, by place in the call
        self._all_pixels = 0
        self._arrival = time.time()
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self.total = sum(job.params.n for job in jobs)

    @property
    def input_tokens(self) -> int:
        """Of prompts that have been computed, without what the cache held."""
        return self._collector.input_tokens

    @property
    def output_tokens(self) -> int:
        return self._collector.output_tokens

    @property
    def pending(self) -> bool:
        """Whether there is more to collect."""
        running = self._collector.live or self._deferred or self._unsent
        return bool(running or self._collector.has_failures)

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

    def collect(self, timeout: float, whole: bool = False) -> dict[int, RequestOutput]:
        """Waits for output and takes it, what has failed with it: the news, by place in the call.

        whole: whole answers alone, of the requests that the engine has let go of.
        """
        seen = self._session.adapter_changes()
        self._send()
        self._launch_deferred()
        tags: list[int] = []
        if self._collector.has_failures:  # to be told at once, with whatever else is there already
            timeout = 0
        if self._collector.live:
            tags = self._selector.wait(timeout)
        elif timeout:  # other calls use all adapters
            self._session.wait_for_adapter_change(seen, timeout)
        news = self._collector.collect(tags, whole)
        for tag in tags:
            if tag not in self._collector.live and tag in self._pixels:
                self._selector.remove(tag)
                self._all_pixels -= self._pixels.pop(tag)
                self._freed = True
        return news

    def tell_failures(self) -> None:
        """One warning in the log if anything has failed."""
        self._collector.tell_failures()

    def cancel(self) -> None:
        """Cancels what still runs, wherever an exception left it."""
        for job in self._jobs:
            job.drop()
        for tag in self._collector.live:
            self._selector.remove(tag)
        self._collector.cancel()
        self._deferred.clear()
        self._unsent.clear()
        self._pixels.clear()
        self._all_pixels = 0

    def _submit(self, job: Job, tag: int, arrival: float, stops: StopStrings | None) -> None:
        facts = new_facts(job, arrival)
        try:
            requests = prepare(job, facts, self._planner, stops)
            constrain(requests, job.params, self._constraints)
        except request_errors() as error:
            for i, item in enumerate(facts):
                self._collector.fail(tag + i, item, error)
            return
        while self._constraints.notes:
            warnings.warn(self._constraints.notes.pop(), stacklevel=2)
        for i, request in enumerate(requests):
            try:
                self._collector.reserve(request.facts.request_id)
            except ValueError as error:
                self._collector.fail(tag + i, request.facts, error)
            else:
                self._launch(tag + i, request)

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
            self._collector.forget(name)
            self._collector.fail(tag, request.facts, error)
            return True
        live = OutputProcessor(request, handle, self._planner)
        self._collector.add(tag, live)
        self._pixels[tag] = request.pixel_bytes
        self._all_pixels += request.pixel_bytes
        self._selector.add(live.queue, tag)
        return True

    def _launch_deferred(self) -> None:
        """Tries again what waits, unless nothing of this call has ended since the last time."""
        if not self._deferred or (self._collector.live and not self._freed):
            return
        self._freed = False
        deferred, self._deferred = self._deferred, []
        busy: set[LoRARequest | None] = set()
        for tag, request in deferred:
            if request.lora in busy:
                self._deferred.append((tag, request))
            elif not self._launch(tag, request):
                busy.add(request.lora)
