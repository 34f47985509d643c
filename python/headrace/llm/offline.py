"""How a call of LLM waits: to the end, or increment by increment."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import EngineError
from headrace.llm.output_processor import OutputProcessor
from headrace.llm.outputs import RequestOutput
from headrace.llm.progress import Progress
from headrace.llm.request_group import RequestGroup

_REFRESH_SECONDS = 0.5  # of the progress bar, while nothing comes


def run_to_end(call: RequestGroup, progress: Progress, raise_on_error: bool) -> list[RequestOutput]:
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


def _result(live: OutputProcessor, raise_on_error: bool) -> RequestOutput:
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

    def __init__(self, call: RequestGroup, progress: Progress, raise_on_error: bool) -> None:
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
