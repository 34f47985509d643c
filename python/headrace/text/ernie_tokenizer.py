"""ERNIE-4.5's tokenizer as FastDeploy offers it."""

from __future__ import annotations

import os

from headrace.text.callable_tokenizer import CallableTokenizer
from headrace.text.tokenizer import Tokenizer


class Ernie4_5Tokenizer(CallableTokenizer):
    """The tokenizer of an ERNIE-4.5 folder, from tokenizer.json or its sentencepiece model.

    As FastDeploy's, it adds no special tokens to a text, and a generation prompt to a conversation,
    unless told otherwise.
    """

    adds_special_tokens = False
    adds_generation_prompt = True

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        revision: str = "master",
        padding_side: str | None = None,
    ) -> Ernie4_5Tokenizer:
        """Of a local model folder, or of a model on the hub. Raises TokenizerError."""
        return cls(Tokenizer.from_pretrained(path, revision), padding_side)
