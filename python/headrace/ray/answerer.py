"""Engines in actors that answer the bodies of a batch job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.batch.answers import Answer, LocalAnswerer
from headrace.batch.local_engine import LocalEngine
from headrace.ray.config import HeadraceConfig
from headrace.ray.engine import load_engine


class AnsweringActor:
    """What each actor runs."""

    def __init__(self, config: HeadraceConfig, names: Sequence[str]) -> None:
        self._answerer = LocalAnswerer(LocalEngine(load_engine(config)), names)

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        return await self._answerer.answer(url, body)

    def ready(self) -> None:
        """Returns when the model is loaded."""


class RayAnswerer:
    """Answers by the actor with the least to do.

    An actor that dies is started again by Ray, which repeats what it was doing.
    """

    def __init__(self, config: HeadraceConfig, names: Sequence[str], window: int) -> None:
        """Starts the actors, as many as `config` has at most; Ray must be running.

        window: requests at once, of all together.

        Raises Ray's errors if a model can't be loaded.
        """
        import ray

        _, count = config.actors
        kind = ray.remote(AnsweringActor).options(
            **config.actor_options(), max_concurrency=window + 1
        )
        self._actors: list[Any] = [kind.remote(config, list(names)) for _ in range(count)]
        self._running = [0] * count
        ray.get([actor.ready.remote() for actor in self._actors])

    async def answer(self, url: str, body: dict[str, Any]) -> Answer:
        place = self._running.index(min(self._running))
        self._running[place] += 1
        try:
            answer: Answer = await self._actors[place].answer.remote(url, body)
            return answer
        finally:
            self._running[place] -= 1

    def close(self) -> None:
        """Ends the actors."""
        import ray

        for actor in self._actors:
            ray.kill(actor)
