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

    __slots__ = ("_cancel", "_core", "_failure", "_finished", "_lock", "_process", "_text")

    def __init__(
        self, core: _core.ResultQueue, text: OutputText, cancel: Callable[[], None]
    ) -> None:
        """`cancel`: ends the request, when a stop string has been found or there is no text."""
        self._core = core
        self._text = text
        self._cancel = cancel
        self._failure: _core.HeadraceError | None = None
        self._finished = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def match(self) -> StopMatch | None:
        """The stop string that has ended the output."""
        return self._text.match

    @property
    def end(self) -> _core.FinishReason | None:
        """Why the text ended the output, if it did: a stop string, or it can't be made."""
        if self._failure is not None:
            return _core.FinishReason.ERROR
        return None if self.match is None else _core.FinishReason.STOP

    def get(self, timeout: float | None) -> Output | None:
        start = time.monotonic()
        self._check_process()
        if not self._acquire(timeout):
            return None
        try:
            if (reason := self.end) is not None:  # again, without ids and text
                return self._ended(Output([], "", [], [], True, reason, -1, "ok", ""), reason)
            left = None if timeout is None else timeout - (time.monotonic() - start)
            return self._read(self._core.get(left))
        finally:
            self._lock.release()

    def get_nowait(self) -> Output | None:
        self._check_process()
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self.end is not None else self._read(self._core.get_nowait())
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
        try:
            self._make_text(output)
        except _core.HeadraceError as error:  # a decoder takes too long
            self._failure = error
            self._cancel()
        return output if (reason := self.end) is None else self._ended(output, reason)

    def _make_text(self, output: Output) -> None:
        text = self._text
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

    def _ended(self, output: Output, reason: _core.FinishReason) -> Output:
        """`output` as the last one."""
        output.finished, output.finish_reason = True, reason
        output.stop_token, output.stop_sequence = -1, -1
        output.stop_string = None if self.match is None else self.match.string
        failure = self._failure
        output.error_code = "ok" if failure is None else failure.code
        output.error_message = "" if failure is None else str(failure)
        return output
