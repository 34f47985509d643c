"""Runs a batch job: rows in, results out, as many at once as the window holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.batch.answers import Answer, Answerer
from headrace.batch.progress import Progress
from headrace.batch.results import Results, result_id
from headrace.batch.rows import Row, Source
from headrace.batch.tasks import Task, custom_id_of, read_task
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

logger = logging.getLogger("headrace.batch")

MOST_BYTES = 64 << 20  # of input that is in flight at once, unless one row alone has more
MOST_FAILURES = 16
_MOST_NOTES = 100
_BREATH = 256  # rows without a result to wait for, between looks at what has finished


class JobStoppedError(RuntimeError):
    """The engine fails whatever it is asked; what has been done is kept."""


@dataclass(slots=True)
class Counts:
    """What a run has done. skipped: rows that had their results before it began."""

    completed: int = 0
    failed: int = 0
    skipped: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class BatchJob:
    """The rows of `source` that have no result yet, answered.

    results: where answers go, and what became of rows that have none.
    window: requests in flight at once, at least 1.
    defaults: fields of bodies that don't have them.
    """

    source: Source
    results: Results
    answerer: Answerer
    window: int
    defaults: Mapping[str, Any] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    _running: dict[asyncio.Task[Answer], Task] = field(default_factory=dict)
    _bytes: int = 0
    # Failures of the engine that no other answer has followed yet.
    _failures: list[dict[str, Any]] = field(default_factory=list)
    _noted: set[str] = field(default_factory=set)

    async def run(self, progress: Progress) -> Counts:
        """Returns when each row has its result. To be called once.

        Raises OSError (the results can't be written), ValueError (the files don't belong together),
        JobStoppedError, and what the answerer raises. What runs is cancelled then.
        """
        try:
            for place, row in enumerate(self.source):
                self._take(row, progress)
                while self._running and self._is_full():
                    await self._collect(progress)
                if place % _BREATH == 0:
                    await asyncio.sleep(0)
            while self._running:
                await self._collect(progress)
            self._write_failures()
            self._check_all_belong()
        finally:
            await self._cancel()
        return self.counts

    def _take(self, row: Row, progress: Progress) -> None:
        """Begins a row, unless it has its result or can't be begun."""
        given = custom_id_of(row)
        try:
            if row.value is None:
                raise ProtocolError(row.error, None, "invalid_row")
            task = read_task(row, self.defaults)
            own: str | None = task.custom_id
            if not self.results.take_id(task.custom_id):
                raise ProtocolError(
                    "an earlier row has the same custom_id", "custom_id", "duplicate_custom_id"
                )
        except ProtocolError as error:
            if self._is_done(row.number, given):
                progress.skip(row.units)
                return
            self._refuse(row, given, error)
            progress.finish(row.units)
            return
        if self._is_done(row.number, own):
            progress.skip(row.units)
            return
        self._bytes += row.size
        running = asyncio.ensure_future(self.answerer.answer(task.url, task.body))
        self._running[running] = task

    def _is_done(self, number: int, custom_id: str | None) -> bool:
        done = self.results.is_done(number, custom_id)
        self.counts.skipped += done
        return done

    def _is_full(self) -> bool:
        return len(self._running) >= self.window or self._bytes >= MOST_BYTES

    async def _collect(self, progress: Progress) -> None:
        """Waits for an answer, and writes down what has come."""
        finished, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for running in finished:
            task = self._running.pop(running)
            self._bytes -= task.size
            self._record(task, running.result())
            progress.finish(task.units, running.result().tokens)

    def _record(self, task: Task, answer: Answer) -> None:
        self._note(answer)
        response = {
            "status_code": answer.status,
            "request_id": answer.request_id,
            "body": answer.body,
        }
        line = _line(task.number, task.custom_id, response, None)
        if answer.status >= 500:
            # Kept back: if nothing else comes, a restart shall ask again.
            self._failures.append(line)
            if len(self._failures) >= MOST_FAILURES:
                message = answer.body.get("error", {}).get("message")
                raise JobStoppedError(
                    f"the engine failed {MOST_FAILURES} times in a row, the last time with: "
                    f"{quoted(message)}; the same command goes on from here"
                )
            return
        self._write_failures()
        if answer.status == 200:
            self.results.add_answer(line)
            self.counts.completed += 1
            self.counts.prompt_tokens += answer.tokens[0]
            self.counts.output_tokens += answer.tokens[1]
        else:
            self.results.add_error(line)
            self.counts.failed += 1

    def _write_failures(self) -> None:
        failures, self._failures = self._failures, []
        for line in failures:
            self.results.add_error(line)
            self.counts.failed += 1

    def _refuse(self, row: Row, custom_id: str | None, error: ProtocolError) -> None:
        """Of a row that no engine has seen."""
        said = {"code": error.code, "message": f"row {row.number}: {error}", "param": error.param}
        self.results.add_error(_line(row.number, custom_id, None, said))
        self.counts.failed += 1

    def _note(self, answer: Answer) -> None:
        """Says once what had no effect, however many rows have it."""
        for note in answer.notes:
            if note not in self._noted and len(self._noted) < _MOST_NOTES:
                self._noted.add(note)
                logger.warning("%s", note)

    def _check_all_belong(self) -> None:
        missing = self.results.done_before - self.counts.skipped
        if missing:
            raise ValueError(
                f"{self.results} have results of {missing} rows that are not in "
                f"{self.source.path}: the input has changed"
            )

    async def _cancel(self) -> None:
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()
        self._bytes = 0
        self._failures = []


def _line(
    number: int, custom_id: str | None, response: dict[str, Any] | None, error: Any
) -> dict[str, Any]:
    return {
        "id": result_id(number),
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
