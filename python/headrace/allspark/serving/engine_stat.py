"""AsEngineStat: what a model is doing, in numbers. AsFileInfo: the versions of its files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from headrace.allspark.core import engine_api


@dataclass(slots=True)
class AsEngineStat:
    """Counts since start_model; tokens and bytes. Rates are averages over the time in steps."""

    model_name: str = ""
    total_token: int = 0  # what the KV cache can hold
    free_token: int = 0  # of them, free or holding only a prefix nobody uses now
    pendding_request: int = 0  # the original's spelling
    running_request: int = 0
    total_generated_token: int = 0
    total_prefill_token: int = 0
    generate_token_persec: float = 0.0
    process_token_persec: float = 0.0
    total_device_memory_pool_size: int = 0
    used_device_memory_pool_size: int = 0
    prefix_cache_hit_token: int = 0
    prefix_cache_miss_token: int = 0
    prefix_cache_hit_rate: float = 0.0
    prefix_cache_miss_rate: float = 0.0
    span_size: int = 0
    total_span: int = 0
    free_span: int = 0

    @property
    def used_span(self) -> int:
        return self.total_span - self.free_span

    @property
    def token_usage_percentage(self) -> float:
        return _share(self.total_token - self.free_token, self.total_token)

    def dict(self) -> dict[str, str]:
        """Every number as text."""
        values: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        values["used_span"] = self.used_span
        values["token_usage_percentage"] = self.token_usage_percentage
        return {name: str(value) for name, value in values.items()}

    def ToString(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.dict().items())

    __str__ = ToString


@dataclass(slots=True, frozen=True)
class AsFileInfo:
    create_version_graph: str
    create_version_param: str
    current_version_engine: str


def read_stat(name: str, info: engine_api.ModelInfo, stats: engine_api.ModelStats) -> AsEngineStat:
    span = info.block_size
    seen = stats.prefix_hit_tokens + stats.prefix_miss_tokens
    busy = stats.busy_seconds
    return AsEngineStat(
        model_name=name,
        total_token=stats.total_kv_blocks * span,
        free_token=stats.free_kv_blocks * span,
        pendding_request=stats.waiting_requests,
        running_request=stats.running_requests,
        total_generated_token=stats.generated_tokens,
        total_prefill_token=stats.prompt_tokens,
        generate_token_persec=_share(stats.generated_tokens, busy),
        process_token_persec=_share(stats.generated_tokens + stats.prompt_tokens, busy),
        total_device_memory_pool_size=stats.memory_pool_bytes,
        used_device_memory_pool_size=stats.memory_bytes,
        prefix_cache_hit_token=stats.prefix_hit_tokens,
        prefix_cache_miss_token=stats.prefix_miss_tokens,
        prefix_cache_hit_rate=_share(stats.prefix_hit_tokens, seen),
        prefix_cache_miss_rate=_share(stats.prefix_miss_tokens, seen),
        span_size=span,
        total_span=stats.total_kv_blocks,
        free_span=stats.free_kv_blocks,
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
