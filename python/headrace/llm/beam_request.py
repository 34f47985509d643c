"""A beam search of AsyncLLM."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from headrace.llm.async_stream import AsyncRunner, OutputUpdates
from headrace.llm.beam_search import BeamSearch, BeamSearchOutput, beam_planner
from headrace.llm.outputs import RequestOutput
from headrace.llm.requests.preparation import Job, text_size
from headrace.options.sampling_params import BeamSearchParams


class BeamSearchRequest:
    """One beam search: `await` it, or have `results`. It runs while it is awaited: a task that is
    cancelled ends it."""

    notes: Sequence[str] = ()  # as of OutputUpdates

    def __init__(
        self, runner: AsyncRunner, job: Job, params: BeamSearchParams, request_id: str
    ) -> None:
        self.request_id = request_id
        self._runner = runner
        self._job = job
        self._planner = beam_planner(runner.planner)
        self._search = BeamSearch(self._planner, params)
        self._begun = self._aborted = False

    def __await__(self) -> Generator[Any, None, BeamSearchOutput]:
        """What LLM.beam_search gives for a prompt."""
        return self._found().__await__()

    async def results(self) -> list[RequestOutput]:
        """The same as outputs of a request, best first, each with the text of the output alone,
        parsed as those of `generate` are; one that says so if the search has failed."""
        await self._run()
        parsing = self._runner.planner.parsing
        return await self._runner.in_output_thread(partial(self._search.request_outputs, parsing))

    def abort(self) -> None:
        """Ends it after the current token, from any thread: it has no outputs then."""
        self._aborted = True

    async def aclose(self) -> None:
        """As OutputUpdates has it."""

    async def _found(self) -> BeamSearchOutput:
        await self._run()
        (found,) = await self._runner.in_output_thread(self._search.outputs)
        return found

    async def _run(self) -> None:
        if self._begun:
            raise RuntimeError("it has been awaited already")
        self._begun = True
        self._runner.check_process()
        self._runner.opened(self)
        try:
            await self._steps()
        finally:
            self._runner.closed(self)

    async def _steps(self) -> None:
        loading = self._job.begin()
        if loading is not None:
            await loading.finished()
        size = text_size(self._job.original)
        await self._runner.in_text_thread(partial(self._search.add, self._job), size)
        jobs = self._search.jobs()
        while jobs:
            outputs = await self._outputs(jobs)
            jobs = await self._runner.in_output_thread(partial(self._following, outputs))

    def _following(self, outputs: list[RequestOutput]) -> list[Job]:
        self._search.take(outputs)
        if self._aborted:
            self._search.abort()
        return self._search.jobs()

    async def _outputs(self, jobs: list[Job]) -> list[RequestOutput]:
        """Of a step. If one raises, the others end."""
        tasks = [
            asyncio.ensure_future(
                OutputUpdates(self._runner, job, str(uuid.uuid4()), self._planner).result()
            )
            for job in jobs
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
