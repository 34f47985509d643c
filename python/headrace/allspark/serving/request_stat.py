"""RequestStatInfo: ResultQueue.RequestStatInfo() as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class RequestStatInfo:
    """A key that is missing reads as 0. `finished_time` is the attribute `finish_time`."""

    class Key(Enum):
        KEY_REQUEST_TIME_TS = "arrival_time"
        KEY_FIRST_TOKEN_TIME_TS = "first_token_time"
        KEY_LAST_TOKEN_TIME_TS = "last_token_time"
        KEY_TTFT_MS = "time_to_first_token"
        KEY_SCHEDULE_TIME_MS = "time_in_queue"
        KEY_TOTAL_TIME_MS = "finished_time"
        KEY_INPUT_LEN = "context_token_length"
        KEY_OUTPUT_LEN = "generated_token_length"
        KEY_INPUT_CACHE_LEN = "context_cached_length"
        KEY_CONTEXT_TPS = "context_tps"
        KEY_GENERATE_TPS = "generate_tps"

    def __init__(self, info_dict: Mapping[str, int]) -> None:
        def read(key: RequestStatInfo.Key) -> int:
            return info_dict.get(key.value, 0)

        keys = RequestStatInfo.Key
        self.arrival_time = read(keys.KEY_REQUEST_TIME_TS)
        self.first_token_time = read(keys.KEY_FIRST_TOKEN_TIME_TS)
        self.last_token_time = read(keys.KEY_LAST_TOKEN_TIME_TS)
        self.time_to_first_token = read(keys.KEY_TTFT_MS)
        self.time_in_queue = read(keys.KEY_SCHEDULE_TIME_MS)
        self.finish_time = read(keys.KEY_TOTAL_TIME_MS)
        self.context_token_length = read(keys.KEY_INPUT_LEN)
        self.generated_token_length = read(keys.KEY_OUTPUT_LEN)
        self.context_cached_length = read(keys.KEY_INPUT_CACHE_LEN)
        self.context_tps = read(keys.KEY_CONTEXT_TPS)
        self.generate_tps = read(keys.KEY_GENERATE_TPS)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"RequestStatInfo({shown})"
