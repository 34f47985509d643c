"""The forms of dicts that `generate` takes as prompts, for type checkers and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class _PromptOptions(TypedDict, total=False):
    multi_modal_data: Mapping[str, Any]
    multi_modal_uuids: Mapping[str, Any]
    mm_processor_kwargs: Mapping[str, Any]


class TextPrompt(_PromptOptions):
    """A dict for `generate`, by vLLM's name: a text, and images and clips for its marks."""

    prompt: str


class TokensPrompt(_PromptOptions):
    """A dict for `generate`, by vLLM's name: token ids, and images and clips for their marks."""

    prompt_token_ids: list[int]
