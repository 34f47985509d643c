"""The output of a request: ResultQueue and what it hands out."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from headrace.allspark.core import engine_api
from headrace.allspark.enums import GenerateRequestStatus

logger = logging.getLogger("headrace")

# A finished request that nobody reads is reported finished to a thread that asks again this much
# later: see ResultQueue.GenerateStatus.
_UNREAD_SECONDS = 0.1


class GeneratedElements:
    """What came since the last Get. Empty lists if nothing did."""

    __slots__ = (
        "ids_from_generate",
        "log_probs_list",
        "prefix_cache_len",
        "prefix_len_cpu",
        "prefix_len_gpu",
        "tensors_from_model_inference",
        "token_logprobs_list",
    )

    def __init__(self) -> None:
        self.ids_from_generate: list[int] = []
        self.log_probs_list: list[list[tuple[int, float]]] = []
        self.token_logprobs_list: list[float] = []
        self.tensors_from_model_inference: list[Any] = []
        self.prefix_cache_len = 0
        self.prefix_len_gpu = 0
        self.prefix_len_cpu = 0

    def __repr__(self) -> str:
        return f"GeneratedElements(ids_from_generate={self.ids_from_generate})"


class ResultQueue:
    """Output and status of one request. Any thread may use it.

    It owns what it shows: it answers after the request has been released and the engine is gone.
    """

    def __init__(self, results: engine_api.Results, device: str = "cpu") -> None:
        """`device`: of the model, which decides where the prefix cache is."""
        self._results = results
        self._on_cpu = device.startswith("cpu")
        self._lock = threading.Lock()
        self._taken = 0
        self._held: engine_api.Output | None = None  # taken from the engine, not yet by a Get
        self._reason: engine_api.FinishReason | None = None
        self._was_read = False
        self._synced = False
        self._stopped = False
        self._looks: dict[int, float] = {}  # thread -> when it could first have been told the end

    def Get(self) -> GeneratedElements:
        """Waits for new tokens and takes all of them; an empty element after the last."""
        return self._take_held() or self._element(self._results.get())

    def GetWithTimeout(self, timeout_ms: float) -> GeneratedElements | None:
        """The same; None if nothing came within `timeout_ms`. 0 or less waits for ever."""
        held = self._take_held()
        if held is not None:
            return held
        output = self._results.get(None if timeout_ms <= 0 else timeout_ms / 1000)
        return None if output is None else self._element(output)

    def GetNoWait(self) -> GeneratedElements:
        """At once: what is there, else an empty element."""
        return self._take_held() or self._element(self._results.get_nowait())

    def GenerateStatus(self) -> GenerateRequestStatus:
        """The status. It stays behind the tokens: a request ends once they have been taken.

        So a loop that reads while the status is Init or Generating loses nothing, however fast the
        request ends. There are two exceptions for callers that don't read: after
        sync_request the end is shown at once; and of a request that nobody has read from, a thread
        that asks again at least 0.1 s after it first could have been told.
        """
        if self._results.status() != engine_api.RequestStatus.FINISHED:
            return self._running_status()
        with self._lock:
            untaken = self._results.generated_length() - self._taken
            if untaken <= 0 or self._synced or self._unread_for_long():
                return self._end_status()
        return self._running_status()

    def GeneratedLength(self) -> int:
        """Tokens generated so far, taken or not."""
        return self._results.generated_length()

    def RequestStatInfo(self) -> dict[str, int]:
        """Lengths in tokens, times in milliseconds (the first three since the epoch)."""
        return describe_stats(self._results.stats())

    def mark_synced(self) -> None:
        """For the engine: sync_request has waited for the end."""
        with self._lock:
            self._synced = True

    def mark_stopped(self) -> None:
        """For the engine: from now on, a request that is cut short was so by its owner."""
        self._stopped = True

    def _running_status(self) -> GenerateRequestStatus:
        # Never ContextFinished: the original keeps it to itself, and its programs treat it as an
        # error.
        if self._results.generated_length() == 0:
            return GenerateRequestStatus.Init
        return GenerateRequestStatus.Generating

    def _unread_for_long(self) -> bool:
        if self._was_read:
            return False
        now = time.monotonic()
        return now - self._looks.setdefault(threading.get_ident(), now) >= _UNREAD_SECONDS

    def _end_status(self) -> GenerateRequestStatus:
        """REQUIRES: the request has finished. Called with the lock held."""
        if self._reason is None:
            last = self._last()  # its tokens are kept for the next Get
            self._reason = last.finish_reason
            self._held = last if last.token_ids else None
            self._log_failure(last)
        if self._reason == engine_api.FinishReason.ERROR:
            return GenerateRequestStatus.InternalError
        aborted = self._reason == engine_api.FinishReason.ABORT
        if self._reason == engine_api.FinishReason.INTERRUPTED or (aborted and not self._stopped):
            return GenerateRequestStatus.GenerateInterrupted
        return GenerateRequestStatus.GenerateFinished

    def _last(self) -> engine_api.Output:
        """What is left. REQUIRES: the request has finished, so that this doesn't wait."""
        output = self._results.get()
        assert output is not None  # only with a timeout
        return output

    @staticmethod
    def _log_failure(end: engine_api.Output) -> None:
        if end.finish_reason == engine_api.FinishReason.ERROR:
            logger.error("a request failed (%s): %s", end.error_code, end.error_message)

    def _take_held(self) -> GeneratedElements | None:
        with self._lock:
            held, self._held = self._held, None
        return None if held is None else self._element(held)

    def _element(self, output: engine_api.Output | None) -> GeneratedElements:
        element = GeneratedElements()
        if output is None:
            return element
        element.ids_from_generate = output.token_ids
        positions = output.logprobs
        element.log_probs_list = [position.top for position in positions]
        element.token_logprobs_list = [position.logprob for position in positions]
        stats = self._results.stats()
        element.prefix_cache_len = stats.cached_tokens
        element.prefix_len_cpu = stats.cached_tokens if self._on_cpu else stats.host_cached_tokens
        element.prefix_len_gpu = stats.cached_tokens - element.prefix_len_cpu
        with self._lock:
            self._taken += len(element.ids_from_generate)
            self._was_read = True
            first_end = output.finished and self._reason is None
            if output.finished:
                self._reason = output.finish_reason
        if first_end:
            self._log_failure(output)
        return element


def describe_stats(stats: engine_api.RequestStats) -> dict[str, int]:
    """RequestStatInfo's keys; 0 for what has not happened."""

    def since_arrival(when: float) -> int:
        return round((when - stats.arrival_time) * 1000) if when else 0

    scheduled = stats.first_scheduled_time or stats.finished_time

    def rate(tokens: int, start: float, end: float) -> int:
        return round(tokens / (end - start)) if start and end > start else 0

    return {
        "arrival_time": round(stats.arrival_time * 1000),
        "first_token_time": round(stats.first_token_time * 1000),
        "last_token_time": round(stats.last_token_time * 1000),
        "time_to_first_token": since_arrival(stats.first_token_time),
        "time_in_queue": since_arrival(scheduled),
        "finished_time": since_arrival(stats.finished_time),
        "context_token_length": stats.prompt_tokens,
        "generated_token_length": stats.generated_tokens,
        "context_cached_length": stats.cached_tokens,
        "context_tps": rate(
            stats.prompt_tokens, stats.first_scheduled_time, stats.first_token_time
        ),
        "generate_tps": rate(
            stats.generated_tokens - 1, stats.first_token_time, stats.last_token_time
        ),
    }
