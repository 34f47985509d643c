"""vLLM's module path of its engine for coroutines."""

from headrace.compat.engines.async_llm_engine import AsyncLLMEngine as AsyncLLM

__all__ = ["AsyncLLM"]
