"""Adapters (LoRA) that prompts are answered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.quoting import checked_text, quoted


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """The adapter that a prompt is to be answered with.

    lora_name: for messages. lora_int_id: tells adapters of the same name and path apart, >= 1.
    lora_path: a PEFT folder: adapter_config.json and adapter_model.safetensors. It is read when
        the adapter is first used; one that should be read again needs another id.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str

    def __post_init__(self) -> None:
        for name in ("lora_name", "lora_path"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} must be a string that is not empty, got {quoted(value)}")
            checked_text(value, name)
        number = self.lora_int_id
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"lora_int_id must be an int >= 1, got {quoted(number)}")


LoRARequests = LoRARequest | Sequence[LoRARequest | None] | None


def lora_list(requests: LoRARequests, count: int, enabled: bool) -> list[LoRARequest | None]:
    """One for each prompt."""
    if requests is None:
        return [None] * count
    if not enabled:
        raise ValueError("lora_request needs an LLM(..., enable_lora=True)")
    if isinstance(requests, LoRARequest):
        return [requests] * count
    if not isinstance(requests, (list, tuple)) or not all(
        item is None or isinstance(item, LoRARequest) for item in requests
    ):
        raise TypeError(
            f"lora_request must be a LoRARequest or a list of them or None, got {quoted(requests)}"
        )
    if len(requests) != count:
        raise ValueError(f"{len(requests)} lora_requests for {count} prompts")
    return list(requests)
