"""The engine's counters as a list of metrics, by the names that the server's /metrics has."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.native import ModelStats

# Name, help and field of ModelStats.
GAUGES = (
    ("running_replicas", "Replicas of the model that take requests", "running_replicas"),
    ("running_requests", "Requests that take part in steps", "running_requests"),
    ("waiting_requests", "Requests in the engine that wait to be admitted", "waiting_requests"),
    ("kv_blocks", "KV blocks in all", "total_kv_blocks"),
    ("free_kv_blocks", "KV blocks that no request holds", "free_kv_blocks"),
    ("state_slots", "State slots in all, of a model with states", "total_state_slots"),
    ("free_state_slots", "State slots with nothing in them", "free_state_slots"),
    ("state_snapshots", "State slots with a prefix's state", "cached_state_slots"),
    ("memory_bytes", "Memory the model holds", "memory_bytes"),
)
COUNTERS = (
    ("engine_prompt_tokens", "Prompt tokens computed or found in the cache", "prompt_tokens"),
    ("engine_generated_tokens", "Tokens generated", "generated_tokens"),
    ("prefix_hit_tokens", "Prompt tokens found in the prefix cache", "prefix_hit_tokens"),
    ("prefix_unused_tokens", "Prompt tokens cached behind a snapshot", "prefix_unused_tokens"),
    ("snapshots_evicted", "Snapshots that had to leave their slots", "snapshots_evicted"),
    ("preemptions", "Requests that lost their KV blocks and were recomputed", "preemptions"),
    ("steps", "Steps of the engine", "steps"),
    ("busy_seconds", "Time spent in steps", "busy_seconds"),
)


@dataclass
class Metric:
    """A number. labels: {"model": its folder's name}."""

    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """A number that grows."""

    value: float


@dataclass
class Gauge(Metric):
    """A number that goes up and down."""

    value: float


@dataclass
class Vector(Metric):
    """Several numbers that grow. For vLLM's scripts: LLM.get_metrics has none."""

    values: list[int]


@dataclass
class Histogram(Metric):
    """How many values were at most so large. For vLLM's scripts: LLM.get_metrics has none."""

    count: int
    sum: float
    buckets: dict[str, int]


def read_metrics(stats: ModelStats, model: str) -> list[Metric]:
    """`model`: the label."""
    kinds: tuple[tuple[type[Gauge] | type[Counter], tuple[tuple[str, str, str], ...]], ...] = (
        (Gauge, GAUGES),
        (Counter, COUNTERS),
    )
    return [
        kind(f"headrace_{name}", {"model": model}, getattr(stats, field))
        for kind, rows in kinds
        for name, _, field in rows
    ]
