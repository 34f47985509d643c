"""vLLM's module path of the prompts."""

from headrace.options.prompt_types import TextPrompt, TokensPrompt

__all__ = ["TextPrompt", "TokensPrompt"]
