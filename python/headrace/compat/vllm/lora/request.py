"""vLLM's module path of the adapter that a request names."""

from headrace.options.lora import LoRARequest

__all__ = ["LoRARequest"]
