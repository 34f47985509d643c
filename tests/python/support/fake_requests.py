"""Requests of the fake engine, and their results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fake_options import SamplingParams
from fake_types import (
    FinishReason,
    MediaInput,
    Output,
    Refusal,
    RequestStats,
    RequestStatus,
)


class RequestState:
    """What a request, its queue and its model share."""

    def __init__(
        self,
        name: str,
        prompt: list[int],
        sampling: SamplingParams,
        *,
        cached_tokens: int,
        host_cached_tokens: int,
    ) -> None:
        self.name, self.prompt, self.sampling = name, prompt, sampling
        self.seed = sampling.seed if sampling.seed is not None else time.monotonic_ns()
        self.lora_name = ""
        self.media: list[MediaInput] = []
        self.output: list[int] = []
        self.changed = threading.Condition()
        self.news = Output()
        self.has_news = False
        self.cancelled = False
        self.callback: Callable[[], None] | None = None
        self.listeners: list[tuple[Callable[[], None], bool]] = []
        self.stats = RequestStats(
            arrival_time=time.time(),
            prompt_tokens=len(prompt),
            cached_tokens=cached_tokens,
            host_cached_tokens=host_cached_tokens,
        )

    def take_media(self, media: Sequence[MediaInput]) -> None:
        """An item's rows stand for tokens like any other."""
        end = 0
        for number, item in enumerate(media):
            for run in item.runs:
                if not end <= run.position <= len(self.prompt) - run.count:
                    raise Refusal(f"media[{number}]: a run at {run.position}")
                end = run.position + run.count
            if (item.pixels is None) == (item.embeddings is None):
                raise Refusal(f"media[{number}]: give pixels or embeddings")
        self.media = list(media)
        for item in self.media:
            if item.video:
                self.stats.video_tokens += item.rows
            else:
                self.stats.image_tokens += item.rows

    def publish(self, change: Callable[[Output], None]) -> None:
        with self.changed:
            change(self.news)
            self.has_news = True
            self.changed.notify_all()
            finished, callback = self.news.finished, self.callback
            calls = [call for call, only_end in self.listeners if finished or not only_end]
        for call in [*calls, *filter(None, [callback])]:
            call()

    def listen(self, listener: Callable[[], None], only_end: bool) -> None:
        with self.changed:
            self.listeners.append((listener, only_end))
            due = self.news.finished or (self.has_news and not only_end)
        if due:
            listener()

    def leave(self, listener: Callable[[], None]) -> None:
        with self.changed:
            self.listeners = [each for each in self.listeners if each[0] is not listener]


class ResultQueue:
    def __init__(self, state: RequestState) -> None:
        self._state = state

    def get(self, timeout: float | None = None) -> Output | None:
        with self._state.changed:
            if not self._state.changed.wait_for(self._ready, timeout):
                return None
        return self._take()

    def _ready(self) -> bool:
        return self._state.has_news or self._state.news.finished

    def get_nowait(self) -> Output | None:
        return self._take() if self._state.has_news else None

    def _take(self) -> Output:
        state = self._state
        with state.changed:
            taken, state.has_news = state.news, False
            kept = (taken.finished, taken.finish_reason, taken.stop_token)
            state.news = Output([], [], [], *kept, taken.error_code, taken.error_message)
            state.news.stop_sequence = taken.stop_sequence
            return taken

    def status(self) -> RequestStatus:
        if self._state.news.finished:
            return RequestStatus.FINISHED
        return RequestStatus.GENERATING if self._state.output else RequestStatus.WAITING

    def finish_reason(self) -> FinishReason:
        return self._state.news.finish_reason

    def generated_length(self) -> int:
        return len(self._state.output)

    def stats(self) -> RequestStats:
        return self._state.stats

    def on_output(self, callback: Callable[[], None] | None) -> None:
        with self._state.changed:
            self._state.callback = callback
            ready = self._ready()
        if ready and callback is not None:
            callback()


class Request:
    def __init__(self, state: RequestState) -> None:
        self._state = state

    @property
    def id(self) -> str:
        return self._state.name

    @property
    def seed(self) -> int:
        return self._state.seed

    def results(self) -> ResultQueue:
        return ResultQueue(self._state)

    def cancel(self) -> None:
        self._state.cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        with self._state.changed:
            return self._state.changed.wait_for(lambda: self._state.news.finished, timeout)
