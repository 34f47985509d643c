"""A model's tokenizer with the defaults that scripts know from transformers."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.quoting import quoted
from headrace.text.tokenizer import Tokenizer


class HFTokenizer:
    """headrace's Tokenizer, where `encode` adds the model's special tokens unless told not to, and
    `apply_chat_template` adds no generation prompt unless told to.

    return_tensors: "pt" or "np" needs torch or numpy in this environment; None gives lists.
    Everything else is the Tokenizer's: eos_token_id, vocab_size, convert_ids_to_tokens...
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode(
        self, text: str, add_special_tokens: bool = True, return_tensors: str | None = None
    ) -> Any:
        ids = self._tokenizer.encode(text, add_special_tokens)
        return ids if return_tensors is None else _tensor([ids], return_tensors)

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool = True,
        return_tensors: str | None = None,
    ) -> dict[str, Any]:
        """input_ids and attention_mask, of one text or of each."""
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self._tokenizer.encode(item, add_special_tokens) for item in texts]
        masks = [[1] * len(row) for row in rows]
        if return_tensors is not None:
            if len({len(row) for row in rows}) > 1:
                raise ValueError("texts of different lengths don't make one tensor: pass one text")
            return {
                "input_ids": _tensor(rows, return_tensors),
                "attention_mask": _tensor(masks, return_tensors),
            }
        one = isinstance(text, str)
        return {"input_ids": rows[0] if one else rows, "attention_mask": masks[0] if one else masks}

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """token_ids: an id, a list, or an array or tensor of one dimension."""
        ids = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        return self._tokenizer.decode(ids, skip_special_tokens)

    def batch_decode(
        self, sequences: Iterable[Any], skip_special_tokens: bool = False, **_: Any
    ) -> list[str]:
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_tensors: str | None = None,
        **variables: Any,
    ) -> Any:
        result = self._tokenizer.apply_chat_template(
            conversation, tools, chat_template, add_generation_prompt, tokenize, **variables
        )
        return result if return_tensors is None else _tensor([result], return_tensors)

    def get_vocab(self) -> dict[str, int]:
        """Every spelling with its id."""
        spelled = (
            (self._tokenizer.convert_ids_to_tokens(token), token) for token in range(len(self))
        )
        return {spelling: token for spelling, token in spelled if spelling is not None}


def _tensor(rows: list[list[int]], kind: str) -> Any:
    package = {"pt": "torch", "np": "numpy"}.get(kind)
    if package is None:
        raise ValueError(f"return_tensors must be None, 'pt' or 'np', got {quoted(kind)}")
    module = importlib.import_module(package)
    return module.tensor(rows) if kind == "pt" else module.array(rows)
