"""What an engine on a cluster is and how many there are."""

from __future__ import annotations

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
    concurrency: actors.
    num_cpus: of each actor, and the threads of its engine unless engine_kwargs says num_threads.
    num_gpus: of each actor; with any, the engine runs on "cuda" unless engine_kwargs says device.
    runtime_env: of the actors; see Ray's documentation.
    """

    model: str | os.PathLike[str]
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 1
    num_cpus: int = 1
    num_gpus: float = 0
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "num_cpus"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be at least 1, got {quoted(value)}")
        if not self.num_gpus >= 0:
            raise ValueError(f"num_gpus must not be negative, got {quoted(self.num_gpus)}")

    def llm_arguments(self) -> dict[str, Any]:
        """Of the AsyncLLM of each actor."""
        own: dict[str, Any] = {"model": self.model, "num_threads": self.num_cpus}
        if self.num_gpus:
            own["device"] = "cuda"
        return {**own, **self.engine_kwargs}

    def actor_options(self) -> dict[str, Any]:
        """Ray's, of each actor: it is started again whenever it dies, and its work repeated."""
        options: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.runtime_env is not None:
            options["runtime_env"] = dict(self.runtime_env)
        return {**options, "max_restarts": -1, "max_task_retries": -1}
