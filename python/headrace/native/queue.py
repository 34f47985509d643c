"""The output of one request, for threads and for coroutines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from headrace import _core
from headrace.native.output import Output, from_core
from headrace.native.text_reader import TextReader
from headrace.short_repr import short_repr
from headrace.text.output_text import OutputText

if TYPE_CHECKING:
    from headrace.native.wakeup import Watch


class ResultQueue:
    """Output of one request. Any thread and any event loop may call any method, several at once:
    each output goes to one of the readers, but all of them learn of the end.

    It stays valid when the request has been released, the model and the engine are gone, and then
    answers that it is finished. When it is dropped, and its Request with it, nobody can read the
    output any more: the request is cancelled, unless it was submitted with `detached=True`.
    """

    __slots__ = ("__weakref__", "_cancel", "_core", "_text")

    def __init__(
        self,
        core: _core.ResultQueue,
        text: OutputText | None,
        cancel: Callable[[], None],
        detached: bool = False,
    ) -> None:
        """Made by Request. `cancel`: called when it is dropped, unless it is detached."""
        self._cancel = None if detached else cancel
        self._core = core
        self._text = None if text is None else TextReader(core, text, cancel)

    def __del__(self) -> None:
        # Quietly: in a forked child, which can't cancel, and while the interpreter ends.
        with contextlib.suppress(Exception):
            if self._cancel is not None:
                self._cancel()

    def __repr__(self) -> str:
        return short_repr(self, self._summary())

    def _summary(self) -> dict[str, Any]:
        status = self.status()
        finished = status == _core.RequestStatus.FINISHED
        return {
            "generated_tokens": self.generated_length(),
            "status": status,
            **({"finish_reason": self.finish_reason()} if finished else {}),
        }

    @overload
    def get(self, timeout: None = None) -> Output: ...

    @overload
    def get(self, timeout: float) -> Output | None: ...

    def get(self, timeout: float | None = None) -> Output | None:
        """Waits for new output and takes all of it; None if nothing came within `timeout` seconds.

        After the last output: a finished one without tokens, at once, every time.
        """
        if self._text is not None:
            return self._text.get(timeout)
        output = self._core.get(timeout)
        return None if output is None else from_core(output)

    def get_nowait(self) -> Output | None:
        """What is new, or None; so, too, once the last output has been taken."""
        if self._text is not None:
            return self._text.get_nowait()
        output = self._core.get_nowait()
        return None if output is None else from_core(output)

    @overload
    async def get_async(self, timeout: None = None) -> Output: ...

    @overload
    async def get_async(self, timeout: float) -> Output | None: ...

    async def get_async(self, timeout: float | None = None) -> Output | None:
        """`get` for coroutines. Cancelling it loses no output."""
        from headrace.native.wakeup import current_waker  # asyncio is slow to import

        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            output = self.get_nowait()
            if output is not None:
                return output
            if self.status() == _core.RequestStatus.FINISHED:
                return self.get()  # at once
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            await current_waker().wait(self._core, left)

    def __await__(self) -> Generator[Any, None, Output]:
        """`await queue` is `await queue.get_async()`."""
        return self.get_async().__await__()

    def __iter__(self) -> Iterator[Output]:
        """Output until the end, the finished one included."""
        finished = False
        while not finished:
            output = self.get()
            finished = output.finished
            yield output

    def __aiter__(self) -> AsyncIterator[Output]:
        """The same for coroutines."""
        return _AsyncOutputs(self)

    def status(self) -> _core.RequestStatus:
        status = self._core.status()
        return status if self._text_end() is None else _core.RequestStatus.FINISHED

    def finish_reason(self) -> _core.FinishReason:
        """NONE until it has finished."""
        reason = self._core.finish_reason()
        return self._text_end() or reason

    def _text_end(self) -> _core.FinishReason | None:
        """Why the text that has been read ended the output, if it did."""
        return None if self._text is None else self._text.end

    def generated_length(self) -> int:
        """Tokens generated so far, taken or not."""
        return self._core.generated_length()

    def stats(self) -> _core.RequestStats:
        """Times and counts of the request so far."""
        return self._core.stats()


class _AsyncOutputs:
    __slots__ = ("_finished", "_queue")

    def __init__(self, queue: ResultQueue) -> None:
        self._queue = queue
        self._finished = False

    def __aiter__(self) -> _AsyncOutputs:
        return self

    async def __anext__(self) -> Output:
        if self._finished:
            raise StopAsyncIteration
        output = await self._queue.get_async()
        self._finished = output.finished
        return output


def watch(queues: Sequence[ResultQueue], *, only_end: bool = False) -> Watch:
    """A Watch of the queues on the running event loop."""
    from headrace.native.wakeup import Watch, current_waker  # asyncio is slow to import

    return Watch(current_waker(), [queue._core for queue in queues], only_end)
