"""Batches, one after the other, on a thread with an event loop of its own. Their descriptions are
read and written by another one. So nothing that they write to the disk holds up a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from headrace.batch.answers import Answer, LocalAnswerer
from headrace.batch.job import BatchJob
from headrace.batch.local_engine import LocalEngine
from headrace.batch.progress import Progress
from headrace.batch.results import Results
from headrace.batch.rows import Source
from headrace.llm.async_llm import AsyncLLM
from headrace.llm.outputs import RequestOutput
from headrace.protocol.chat import ChatRequest
from headrace.protocol.completions import CompletionRequest
from headrace.quoting import quoted
from headrace.server.batches.files import FileStore, disk_errors
from headrace.server.config import ServerConfig
from headrace.server.errors import ApiError
from headrace.server.limits import check_chat, check_completion
from headrace.server.models import ModelRegistry

logger = logging.getLogger("headrace.server")

_OPEN = ("validating", "in_progress", "finalizing")
_SECONDS = 24 * 3600
T = TypeVar("T")


class BatchRunner:
    """Works through the batches of a folder; `start` goes on with those that a server before has
    left. Belongs to one event loop.

    One thread does everything with the batches' descriptions, and knows which batch runs: so one
    change follows the other, also if who asked for it has gone.
    """

    def __init__(self, store: FileStore, models: ModelRegistry, config: ServerConfig) -> None:
        self._store = store
        self._models = models
        self._config = config
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._work: asyncio.Task[None] | None = None
        self._running: tuple[str, _Run] | None = None
        self._disk = ThreadPoolExecutor(1, "headrace-batches")

    async def start(self) -> None:
        for batch_id in await self._on_disk(self._left_over):
            self._waiting.put_nowait(batch_id)
        self._work = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        """What runs is taken up again by the next server of this folder."""
        if self._work is not None:
            self._work.cancel()
            running = self._running
            if running is not None:
                running[1].cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await asyncio.to_thread(self._disk.shutdown)

    async def create(self, file_id: str, endpoint: str, metadata: dict[str, Any]) -> dict[str, Any]:
        """Raises ApiError: 404, or 507 for a full disk."""
        loop = asyncio.get_running_loop()

        def create() -> dict[str, Any]:
            self._store.read(file_id)
            with disk_errors():
                batch = self._create(file_id, endpoint, metadata)
            loop.call_soon_threadsafe(self._waiting.put_nowait, batch["id"])
            return batch

        return await self._on_disk(create)

    async def read(self, batch_id: str) -> dict[str, Any]:
        """Raises ApiError (404)."""
        return await self._on_disk(partial(self._read, batch_id))

    async def list(self) -> Sequence[dict[str, Any]]:
        return await self._on_disk(self._list)

    async def cancel(self, batch_id: str) -> dict[str, Any]:
        """Raises ApiError: 404, or 409 for a batch that has ended."""
        return await self._on_disk(partial(self._cancel, batch_id))

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    # What runs on the thread of the disk.

    def _left_over(self) -> Sequence[str]:
        """The batches to go on with, the oldest first."""
        found = []
        for batch in reversed(self._store.list("batch")):
            if batch["status"] in _OPEN:
                found.append(batch["id"])
            elif batch["status"] == "cancelling":
                try:
                    self._end(batch["id"], "cancelled")
                except (ApiError, OSError) as error:  # the next server tries again
                    logger.error("%s %s", batch["id"], error)
        return found

    def _create(self, file_id: str, endpoint: str, metadata: dict[str, Any]) -> dict[str, Any]:
        now = int(time.time())
        batch_id = self._store.new_id("batch")
        return self._store.write(
            batch_id,
            {
                "id": batch_id,
                "object": "batch",
                "endpoint": endpoint,
                "errors": None,
                "input_file_id": file_id,
                "completion_window": "24h",
                "status": "validating",
                "output_file_id": None,
                "error_file_id": None,
                "created_at": now,
                "expires_at": now + _SECONDS,
                "request_counts": {"total": 0, "completed": 0, "failed": 0},
                "metadata": metadata,
            },
        )

    def _read(self, batch_id: str) -> dict[str, Any]:
        batch = self._store.read(batch_id, "batch")
        if self._running is not None and self._running[0] == batch_id:
            batch["request_counts"] = self._running[1].counts()
        return batch

    def _list(self) -> Sequence[dict[str, Any]]:
        found = []
        for batch in self._store.list("batch"):
            with contextlib.suppress(ApiError):  # gone meanwhile
                found.append(self._read(batch["id"]))
        return found

    def _cancel(self, batch_id: str) -> dict[str, Any]:
        batch = self._store.read(batch_id, "batch")
        if batch["status"] not in _OPEN:
            raise ApiError(f"the batch is {batch['status']} already", 409, code="batch_ended")
        with disk_errors():
            batch = self._change(batch_id, status="cancelling", cancelling_at=int(time.time()))
            if self._running is not None and self._running[0] == batch_id:
                self._running[1].cancel()
            else:
                batch = self._end(batch_id, "cancelled")
        return batch

    def _begin(self, batch_id: str) -> tuple[dict[str, Any], _Run] | None:
        """None if it was cancelled while it waited. Raises ApiError if its file is gone."""
        batch = self._store.read(batch_id, "batch")
        if batch["status"] not in _OPEN:
            return None
        batch = self._change(batch_id, status="in_progress", in_progress_at=int(time.time()))
        names = [batch.get("output_file_id"), batch.get("error_file_id")]
        output, errors = (name or self._store.new_id("file") for name in names)
        batch = self._change(batch_id, output_file_id=output, error_file_id=errors)
        run = _Run(self._store, batch, self._config.batch_window)
        self._running = (batch_id, run)
        return batch, run

    def _finish(self, batch_id: str, run: _Run, status: str, said: str) -> None:
        """said: why it has failed."""
        self._running = None
        if said:
            data = [{"code": "batch_failed", "message": said[:500]}]
            self._change(batch_id, errors={"object": "list", "data": data})
        self._change(batch_id, request_counts=run.counts())
        self._end(batch_id, status)

    def _end(self, batch_id: str, status: str) -> dict[str, Any]:
        """Describes the files that are there, and forgets those that are not."""
        batch = self._store.read(batch_id, "batch")
        for name in ("output_file_id", "error_file_id"):
            file_id = batch[name]
            if file_id is not None and self._store.data(file_id).exists():
                self._store.add(file_id, f"{batch_id}_{name[:-8]}.jsonl", "batch_output")
            else:
                batch[name] = None
        batch |= {"status": status, f"{status}_at": int(time.time())}
        return self._store.write(batch_id, batch)

    def _change(self, batch_id: str, **fields: Any) -> dict[str, Any]:
        return self._store.write(batch_id, {**self._store.read(batch_id, "batch"), **fields})

    # What runs on the event loop.

    async def _loop(self) -> None:
        while True:
            batch_id = await self._waiting.get()
            try:
                begun = await self._on_disk(partial(self._begin, batch_id))
                if begun is not None:
                    await self._one(*begun)
            except ApiError:  # its file is gone
                pass
            except OSError as error:  # its state can't be written: the next server tries again
                logger.error("%s %s", batch_id, error)

    async def _one(self, batch: dict[str, Any], run: _Run) -> None:
        batch_id, said = batch["id"], ""
        with contextlib.ExitStack() as held:
            for model in self._models.models:
                held.enter_context(model.used())
            answerer = _Answerer(batch["endpoint"], self._models, self._config)
            thread = asyncio.create_task(asyncio.to_thread(run.run, answerer))
            try:
                await asyncio.shield(thread)
                status = "completed"
            except asyncio.CancelledError:  # the server ends
                await asyncio.gather(thread, return_exceptions=True)
                raise
            except _CancelledError:
                status = "cancelled"
            except Exception as error:
                logger.error("%s %s", batch_id, type(error).__name__)
                status, said = "failed", str(error) or type(error).__name__
        await self._on_disk(partial(self._finish, batch_id, run, status, said))


class _CancelledError(Exception):
    """Somebody has cancelled the batch."""


class _Run:
    """One batch. `run` is called on a thread of its own; the others on any."""

    def __init__(self, store: FileStore, batch: dict[str, Any], window: int) -> None:
        self._input = store.data(batch["input_file_id"])
        self._output = store.data(batch["output_file_id"])
        self._errors = store.data(batch["error_file_id"])
        self._window = window
        self._total = 0
        self._job: BatchJob | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def run(self, answerer: _Answerer) -> None:
        """Raises _CancelledError, and what ends a job."""
        try:
            asyncio.run(self._run(answerer))
        except asyncio.CancelledError:
            raise _CancelledError from None

    async def _run(self, answerer: _Answerer) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        with self._input.open("rb") as file:
            self._total = sum(1 for line in file if line.strip())
        source = Source(self._input)
        with Results(self._output, self._errors) as results:
            self._job = BatchJob(source, results, answerer, self._window)
            await self._job.run(Progress(source.units, False))

    def cancel(self) -> None:
        self._cancelled = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    def counts(self) -> dict[str, int]:
        if self._job is None:
            return {"total": self._total, "completed": 0, "failed": 0}
        counts = self._job.counts
        done = counts.completed + counts.skipped
        return {"total": self._total, "completed": done, "failed": counts.failed}


class _LimitedEngine(LocalEngine):
    """Takes of a row what the server takes of a request."""

    def __init__(self, llm: AsyncLLM, config: ServerConfig) -> None:
        super().__init__(llm)
        self._config = config

    async def chat(self, request: ChatRequest) -> Sequence[RequestOutput]:
        check_chat(self._config, request)
        return await super().chat(request)

    async def generate(self, request: CompletionRequest) -> Sequence[RequestOutput]:
        check_completion(self._config, request)
        return await super().generate(request)


class _Answerer:
    """Answers rows by the models that the server had when the batch began."""

    def __init__(self, endpoint: str, models: ModelRegistry, config: ServerConfig) -> None:
        self._endpoint = endpoint
        self._models = {
            name: LocalAnswerer(_LimitedEngine(model.llm, config), model.names)
            for model in models.models
            for name in model.names
        }

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        error: ApiError | None = None
        model = body.get("model")
        chosen = self._models.get(model) if isinstance(model, str) else None
        if url != self._endpoint:
            error = ApiError(f"the batch is for {self._endpoint}, got {quoted(url)}", param="url")
        elif chosen is None:
            error = ApiError(f"the model {quoted(model)} does not exist", 404, param="model")
        if error is None and chosen is not None:
            return await chosen.answer(url, body)
        refused = error or ApiError("the row can't be answered")
        return Answer(refused.status, refused.body(url), f"req_{FileStore.new_id('file')[5:]}")
