"""Output with text: detokenized as it is read, and ended by stop strings."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from headrace import _core
from headrace.native.output import Output, from_core
from headrace.options.param_checks import MAX_STOP_CHARS, check_texts
from headrace.text.output_text import OutputText, StopMatch, StopStrings


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

    __slots__ = ("_cancel", "_core", "_finished", "_lock", "_process", "_text")

    def __init__(
        self, core: _core.ResultQueue, text: OutputText, cancel: Callable[[], None]
    ) -> None:
        """`cancel`: ends the request, when a stop string has been found."""
        self._core = core
        self._text = text
        self._cancel = cancel
        self._finished = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def match(self) -> StopMatch | None:
        """The stop string that has ended the output."""
        return self._text.match

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
        output, text = from_core(taken), self._text
        ids = output.token_ids[:-1] if output.stop_token >= 0 else output.token_ids
        pieces = []
        for count, token_id in enumerate(ids, 1):
            pieces.append(text.push(token_id))
            if text.match is not None:
                self._cancel()
                output.token_ids, output.logprobs = ids[:count], output.logprobs[:count]
                break
        if output.finished and not self._finished:
            self._finished = True
            pieces.append(text.finish())
        output.text = "".join(pieces)
        return output if text.match is None else self._ended(output)

    def _ended(self, output: Output) -> Output:
        """`output` as the last one, because of the stop string."""
        assert self.match is not None
        output.finished, output.finish_reason = True, _core.FinishReason.STOP
        output.stop_token, output.stop_sequence = -1, -1
        output.stop_string = self.match.string
        output.error_code, output.error_message = "ok", ""
        return output
