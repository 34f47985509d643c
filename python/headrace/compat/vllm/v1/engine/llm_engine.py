"""vLLM's module path of its engine that a script steps."""

from headrace.compat.engines.llm_engine import LLMEngine

__all__ = ["LLMEngine"]
