"""vLLM's module path of the prompts."""

from headrace.prompts import TextPrompt, TokensPrompt

__all__ = ["TextPrompt", "TokensPrompt"]
