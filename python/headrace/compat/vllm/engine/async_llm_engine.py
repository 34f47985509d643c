"""vLLM's older module path of its engine for coroutines."""

from headrace.compat.engines.async_llm_engine import AsyncLLMEngine

__all__ = ["AsyncLLMEngine"]
