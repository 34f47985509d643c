"""How a call of LLM waits: to the end, or increment by increment."""

from __future__ import annotations

import os
from collections.abc import Iterator

from headrace.llm.output_kinds import OutputKinds
from headrace.llm.outputs import RequestOutput
from headrace.llm.progress import Progress
from headrace.llm.requests.group import RequestGroup

_REFRESH_SECONDS = 0.5  # of the progress bar, while nothing comes


def run_to_end(call: RequestGroup, progress: Progress) -> list[RequestOutput]:
    """The results of all requests, in order. An exception, Ctrl-C too, cancels the call."""
    results: dict[int, RequestOutput] = {}
    try:
        call.start()
        while call.pending:
            done = call.collect(_REFRESH_SECONDS, whole=True)
            results.update(done)
            progress.update(len(done), call.input_tokens, call.output_tokens)
    finally:
        call.cancel()
        progress.close()
    call.tell_failures()
    return [results[tag] for tag in range(call.total)]


class OutputStream(Iterator[list[RequestOutput | None]]):
    """The updates of a call: lists as long as the call has outputs, None where nothing is new. They
    are increments, unless SamplingParams.output_kind says otherwise.

    Its requests run on whether or not it is read. `close`, or dropping it, cancels what still runs.
    """

    def __init__(self, call: RequestGroup, progress: Progress, kinds: OutputKinds) -> None:
        """Submits the requests of `call`."""
        self._call = call
        self._kinds = kinds
        self._progress = progress
        self._process = os.getpid()
        try:
            call.start()
        except BaseException:
            self.close()
            raise

    def __next__(self) -> list[RequestOutput | None]:
        try:
            while self._call.pending:
                news = self._call.collect(_REFRESH_SECONDS)
                done = sum(output.finished for output in news.values())
                self._progress.update(done, self._call.input_tokens, self._call.output_tokens)
                if news := self._kinds.of(news):
                    return [news.get(tag) for tag in range(self._call.total)]
        except BaseException:
            self.close()
            raise
        self.close()
        self._call.tell_failures()
        raise StopIteration

    def close(self) -> None:
        """Cancels what still runs. Idempotent. Does nothing in a fork()ed child: what runs is its
        parent's."""
        if self._process != os.getpid():
            return
        self._call.cancel()
        self._progress.close()

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        gone = os is None  # at the interpreter's end, whose own work it is then to close all
        if not gone and hasattr(self, "_call"):
            self.close()
