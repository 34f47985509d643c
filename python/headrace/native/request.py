"""The handle of a submitted request."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace import _core
from headrace.native.queue import ResultQueue
from headrace.short_repr import short_repr
from headrace.text.output_text import OutputText


class Request:
    """A request in an engine. Any thread and any event loop may call any method, also after the
    request has finished or been released, and after the engine is gone.

    Leaving a `with` or `async with` block cancels it, and so does dropping this object and its
    queue, when nobody can read the output any more. One submitted with `detached=True` runs on.

        with engine.submit("m", prompt) as request:
            for output in request.results(): ...
    """

    __slots__ = ("__weakref__", "_core", "_queue", "id", "prompt_token_ids", "seed")

    def __init__(
        self,
        core: _core.Request,
        prompt_token_ids: list[int],
        text: OutputText | None,
        detached: bool = False,
    ) -> None:
        """Made by Engine.submit."""
        self._core = core
        self._queue = ResultQueue(core.results(), text, core.cancel, detached)
        self.id: str = core.id
        self.seed: int = core.seed  # in use, also when the engine picked it
        self.prompt_token_ids = prompt_token_ids

    def __repr__(self) -> str:
        facts = {"id": self.id, "prompt_tokens": len(self.prompt_token_ids)}
        return short_repr(self, {**facts, **self._queue._summary()})

    def results(self) -> ResultQueue:
        """Its output: the same object every time."""
        return self._queue

    def cancel(self) -> None:
        """Ends it with ABORT; what it generated stays readable. Returns at once."""
        self._core.cancel()

    def release(self) -> None:
        """Cancels it and waits until the engine has let go of it, a step at most: what it held is
        free then. Its queue stays readable."""
        self._core.cancel()
        self._core.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has finished; False if `timeout` seconds passed first. Takes no output."""
        return self._core.wait(timeout)

    async def wait_async(self, timeout: float | None = None) -> bool:
        """`wait` for coroutines."""
        from headrace.native.wakeup import current_waker  # asyncio is slow to import

        if self._core.wait(0):
            return True
        return await current_waker().wait(self._queue._core, timeout, only_end=True)

    async def _finish(self) -> _core.FinishReason:
        await self.wait_async()
        return self._queue.finish_reason()

    def __await__(self) -> Generator[Any, None, _core.FinishReason]:
        """`await request`: waits until it has finished and says why. Takes no output."""
        return self._finish().__await__()

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> Request:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._core.cancel()
        await self.wait_async()
