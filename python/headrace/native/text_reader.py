"""Output with text: detokenized as it is read, and ended by stop strings."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from headrace import _core
from headrace.native.output import Output, from_core
from headrace.options.param_checks import MAX_STOP_CHARS, check_texts
from headrace.text.detokenizer import Detokenizer
from headrace.text.stop_strings import StopMatch, StopStrings, StopText


class TextOptions:
    """How the text of a request is made."""

    __slots__ = ("detokenizer", "min_tokens", "stops")

    def __init__(
        self, detokenizer: Detokenizer, stops: StopStrings | None = None, min_tokens: int = 0
    ) -> None:
        """`stops`: end the output, but not before it has `min_tokens`."""
        self.detokenizer = detokenizer
        self.stops = stops
        self.min_tokens = min_tokens


def stop_strings(stop: str | Sequence[str]) -> StopStrings | None:
    """What searches for them; None if there are none. Raises TypeError, ValueError."""
    check_texts("stop", stop, MAX_STOP_CHARS)
    strings = [stop] if isinstance(stop, str) else stop
    if not all(strings):
        raise ValueError("stop must not contain an empty string.")
    return StopStrings(strings) if strings else None


class TextReader:
    """Takes output and detokenizes it in the same order, whoever reads.

    A reader holds the lock while it waits, so what comes then is for that one.
    """

    __slots__ = ("_cancel", "_core", "_count", "_finished", "_lock", "_process", "_stop", "_text")

    def __init__(
        self, core: _core.ResultQueue, options: TextOptions, cancel: Callable[[], None]
    ) -> None:
        """`cancel`: ends the request, when a stop string has been found."""
        self._core = core
        self._text = options
        self._stop = None if options.stops is None else StopText(options.stops)
        self._cancel = cancel
        self._count = 0  # of tokens with text
        self._finished = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def match(self) -> StopMatch | None:
        """The stop string that has ended the output."""
        return None if self._stop is None else self._stop.match

    def get(self, timeout: float | None) -> Output | None:
        start = time.monotonic()
        self._check_process()
        if not self._acquire(timeout):
            return None
        try:
            if self.match is not None:  # again, without ids and text
                return self._ended(
                    Output([], "", [], [], True, _core.FinishReason.STOP, -1, "ok", "")
                )
            left = None if timeout is None else timeout - (time.monotonic() - start)
            return self._read(self._core.get(left))
        finally:
            self._lock.release()

    def get_nowait(self) -> Output | None:
        self._check_process()
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self.match is not None else self._read(self._core.get_nowait())
        finally:
            self._lock.release()

    def _check_process(self) -> None:
        """In a forked child a thread that isn't there may hold the lock for ever."""
        if os.getpid() != self._process:
            self._core.status()  # the engine's own error

    def _acquire(self, timeout: float | None) -> bool:
        if timeout is None or timeout >= threading.TIMEOUT_MAX:
            return self._lock.acquire()
        return self._lock.acquire(timeout=max(timeout, 0.0))

    def _read(self, taken: _core.Output | None) -> Output | None:
        if taken is None:
            return None
        output = from_core(taken)
        detokenizer = self._text.detokenizer
        ids = output.token_ids[:-1] if output.stop_token >= 0 else output.token_ids
        pieces = []
        for count, token_id in enumerate(ids, 1):
            pieces.append(detokenizer.push(token_id))
            if self._stop is not None:
                pieces[-1] = self._stop.push(pieces[-1], self._may_stop(1))
                if self._stop.match is not None:
                    self._cancel()
                    output.token_ids, output.logprobs = ids[:count], output.logprobs[:count]
                    break
        if output.finished and not self._finished and self.match is None:
            pieces.append(self._finish())
            self._finished = True
        output.text = "".join(pieces)
        return output if self.match is None else self._ended(output)

    def _may_stop(self, new_tokens: int) -> bool:
        self._count += new_tokens
        return self._count >= self._text.min_tokens

    def _finish(self) -> str:
        rest = self._text.detokenizer.finish()
        return rest if self._stop is None else self._stop.finish(rest, self._may_stop(0))

    def _ended(self, output: Output) -> Output:
        """`output` as the last one, because of the stop string."""
        assert self.match is not None
        output.finished, output.finish_reason = True, _core.FinishReason.STOP
        output.stop_token, output.stop_string = -1, self.match.string
        output.error_code, output.error_message = "ok", ""
        return output
