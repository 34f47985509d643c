"""The requests of one call that are in the engine: their news, their ends, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.errors import EngineError
from headrace.llm.outputs import RequestOutput
from headrace.llm.requests.failures import FailureNotice
from headrace.llm.requests.output_processor import OutputProcessor, failed_output
from headrace.llm.requests.preparation import RequestFacts
from headrace.llm.requests.registry import Registry
from headrace.llm.requests.session import describe_error


class Collector:
    """Takes the output of a call's requests, each under its place in the call.

    How they are waited for is the caller's affair. Belongs to one thread at a time.
    """

    def __init__(
        self,
        registry: Registry,
        outputs: Sequence[int],
        *,
        raise_on_error: bool,
        until_released: bool,
    ) -> None:
        """`outputs`: how many each prompt has.

        raise_on_error: a request that fails raises EngineError.
        until_released: a request stays here until the engine has let go of it. Otherwise it goes
            as soon as its output is complete, and is cancelled if it still runs.
        """
        self._registry = registry
        self._raise_on_error = raise_on_error
        self._until_released = until_released
        self._names: set[str] = set()  # in the registry
        self._complete: set[int] = set()  # whose last update has been given, and that are here yet
        self._failed: dict[int, RequestOutput] = {}  # not given yet
        self._failures = FailureNotice(outputs)
        self.live: dict[int, OutputProcessor] = {}
        self.input_tokens = 0  # of prompts that have been computed, without what the cache held
        self.output_tokens = 0

    @property
    def names(self) -> set[str]:
        """The ids of the requests in flight."""
        return set(self._names)

    @property
    def has_failures(self) -> bool:
        """Whether `collect` has some to give."""
        return bool(self._failed)

    def reserve(self, request_id: str) -> None:
        """Puts a request in flight, which `add` or `forget` follows. Raises ValueError for an id
        in use."""
        self._registry.reserve(request_id, self._names)

    def add(self, tag: int, live: OutputProcessor) -> None:
        """It has been submitted."""
        self._registry.submitted(live.facts.request_id, live.handle)
        self.live[tag] = live

    def forget(self, request_id: str) -> None:
        """Cancels what was reserved, if it still runs."""
        if request_id in self._names:
            self._names.discard(request_id)
            self._registry.withdraw([request_id])

    def fail(self, tag: int, facts: RequestFacts, error: Exception) -> None:
        """It couldn't be submitted. Raises EngineError if the call is to raise."""
        code, message = describe_error(error)
        if self._raise_on_error:
            raise EngineError(message, code) from error
        self._failed[tag] = failed_output(facts, code, message)

    def collect(self, tags: Iterable[int], whole: bool = False) -> dict[int, RequestOutput]:
        """What is new of these requests, and of those that have failed, by place in the call.

        whole: of those alone that are done, each with its whole answer. Raises EngineError.
        """
        news, self._failed = self._failed, {}
        for tag in tags:
            if (live := self.live.get(tag)) is not None:
                self._update(tag, live, whole, news)
        self._failures.note(news)
        return news

    def _update(
        self, tag: int, live: OutputProcessor, whole: bool, news: dict[int, RequestOutput]
    ) -> None:
        before, computed = live.generated, live.computed_prompt_tokens
        live.drain()
        self.output_tokens += live.generated - before
        self.input_tokens += live.computed_prompt_tokens - computed
        done = live.released if self._until_released else live.finished
        given = tag in self._complete
        if done:
            del self.live[tag]
            self._complete.discard(tag)
        output = None if given or (whole and not done) else live.take()
        if done:
            self.forget(live.facts.request_id)
        if output is None:
            return
        if live.failed and self._raise_on_error:
            raise EngineError(output.error_msg or "the request failed", output.error_code)
        news[tag] = output
        if output.finished and not done:
            self._complete.add(tag)

    def cancel(self) -> None:
        """Cancels what still runs, wherever an exception left it."""
        self._registry.withdraw(self.names)  # a copy: another thread may be in `collect` yet
        self._names.clear()
        self.live.clear()

    def tell_failures(self) -> None:
        """One warning in the log if anything has failed since the last."""
        self._failures.tell()
