"""The offline interface: a model's requests from text to text, and how a call waits for them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.llm.async_llm import AsyncLLM
    from headrace.llm.llm import LLM, Messages, Prompts

__all__ = ["LLM", "AsyncLLM", "Messages", "Prompts"]


def __getattr__(name: str) -> Any:
    """Results can be imported from here without the engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # One of them: asyncio, which the other needs, is slow to import.
    module = "headrace.llm.async_llm" if name == "AsyncLLM" else "headrace.llm.llm"
    return getattr(importlib.import_module(module), name)
