"""What an engine on a cluster is and how many there are."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.quoting import quoted


@dataclass(kw_only=True)
class HeadraceConfig:
    """One engine in each actor, under the names of Ray's own processors.

    model: a folder that every node has, or a hub id.
    engine_kwargs: LLM's keywords.
    task_type: "generate", or "embed": rows get the embedding of their prompt.
    concurrency: actors; (least, most): as many as there is work for.
    num_cpus: of each actor, and the threads of its engine unless engine_kwargs says num_threads.
    num_gpus: of each actor; with any, the engine runs on "cuda" unless engine_kwargs says device.
        data_parallel_size x tensor_parallel_size, where engine_kwargs has them.
    numa: each actor stays on the CPUs of one NUMA node, which no other actor here has; its engine
        has a thread for each of them unless engine_kwargs says num_threads.
    batch_size: rows of a dataset in one call of an actor. max_concurrent_batches: calls that an
        actor works at together, so that one batch fills the gaps of another.
    should_continue_on_error: a row that can't be answered has its error in "__inference_error__",
        instead of ending the job.
    runtime_env: of the actors; see Ray's documentation.

    Raises ValueError and TypeError.
    """

    model: str | os.PathLike[str]
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    task_type: str = "generate"
    concurrency: int | tuple[int, int] = 1
    num_cpus: int = 1
    num_gpus: float = 0
    numa: bool = False
    batch_size: int = 32
    max_concurrent_batches: int = 8
    should_continue_on_error: bool = False
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.task_type not in ("generate", "embed"):
            task = quoted(self.task_type)
            raise ValueError(f'task_type must be "generate" or "embed", got {task}')
        for name in ("num_cpus", "batch_size", "max_concurrent_batches"):
            value = getattr(self, name)
            if not _is_count(value):
                raise ValueError(f"{name} must be at least 1, got {quoted(value)}")
        if not self.num_gpus >= 0:
            raise ValueError(f"num_gpus must not be negative, got {quoted(self.num_gpus)}")
        devices = device_count(self.engine_kwargs)
        on_gpus = self.num_gpus and self.engine_kwargs.get("device", "cuda") != "cpu"
        if on_gpus and devices > 1 and self.num_gpus < devices:
            raise ValueError(
                f"num_gpus is {quoted(self.num_gpus)}, but each engine takes {devices} GPUs "
                "(data_parallel_size x tensor_parallel_size): give each actor as many"
            )
        if self.numa and self.num_gpus:
            raise ValueError("numa is for engines on CPUs: leave num_gpus out")
        given = self.concurrency
        both = given if isinstance(given, tuple) else (given, given)
        if len(both) != 2 or not all(map(_is_count, both)) or both[0] > both[1]:
            raise ValueError(
                "concurrency must be at least 1, or (least, most) with least <= most, "
                f"got {quoted(given)}"
            )

    @property
    def actors(self) -> tuple[int, int]:
        """The least and the most there are."""
        given = self.concurrency
        return given if isinstance(given, tuple) else (given, given)

    def llm_arguments(self) -> dict[str, Any]:
        """Of the AsyncLLM of each actor; `numa` leaves the threads to the actor."""
        path = os.path.abspath(self.model) if os.path.isdir(self.model) else self.model
        own: dict[str, Any] = {"model": path}
        if not self.numa:
            own["num_threads"] = self.num_cpus
        if self.num_gpus:
            own["device"] = "cuda"
        return {**own, **self.engine_kwargs}

    def resources(self) -> dict[str, Any]:
        """Ray's options for what an actor takes."""
        options: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.runtime_env is not None:
            options["runtime_env"] = dict(self.runtime_env)
        return options

    def actor_options(self) -> dict[str, Any]:
        """Ray's, of each actor: it is started again whenever it dies, and its work repeated."""
        return {**self.resources(), "max_restarts": -1, "max_task_retries": -1}


def device_count(engine_kwargs: Mapping[str, Any]) -> int:
    """GPUs, or groups of CPU threads, that an engine with these keywords takes."""
    sizes = (engine_kwargs.get(f"{kind}_parallel_size") for kind in ("data", "tensor"))
    return math.prod(1 if size is None else int(size) for size in sizes)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
