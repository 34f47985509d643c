"""Prompts that are too long, in the words that clients look for."""

from __future__ import annotations

import re
from typing import Any

from headrace.server.errors import ApiError

# What the engine says, with the prompt's length and the model's.
_TOO_MANY = re.compile(r"Length of input token\((\d+)\) exceeds the limit max_model_len\((\d+)\)")
_NO_ROOM = re.compile(r"length of prompt token\((\d+)\) \+ min_dec_len \((\d+)\) > \D+\((\d+)\)")
_TOO_MANY_BYTES = re.compile(r"it has (\d+) bytes, and (\d+) tokens, .* hold at most (\d+)")


class ContextLengthExceeded(ApiError):
    """tokens: of the prompt, or the fewest that it can have. most: of the model."""

    def __init__(self, tokens: int, most: int) -> None:
        super().__init__(
            f"This model's maximum context length is {most} tokens. However, the prompt has "
            f"{tokens} tokens, with the least to be generated. Please reduce its length.",
            code="context_length_exceeded",
        )
        self._anthropic = f"prompt is too long: {tokens} tokens > {most} maximum"

    def body(self, path: str) -> dict[str, Any]:
        made = super().body(path)
        if path.startswith("/v1/messages"):
            made["error"]["message"] = self._anthropic
        return made


def context_length_error(message: str) -> ApiError | None:
    """The error for a message of the engine that says that a prompt is too long; else None."""
    if found := _TOO_MANY.search(message):
        return ContextLengthExceeded(int(found[1]), int(found[2]))
    if found := _NO_ROOM.search(message):
        return ContextLengthExceeded(int(found[1]) + int(found[2]), int(found[3]))
    if found := _TOO_MANY_BYTES.search(message):
        size, most, held = map(int, found.groups())
        return ContextLengthExceeded(max(size * most // held, most + 1), most)
    return None
