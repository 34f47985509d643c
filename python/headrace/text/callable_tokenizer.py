"""A model's tokenizer with the methods and defaults that scripts know from transformers."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import UnsupportedError
from headrace.quoting import quoted
from headrace.text.batch_encoding import BatchEncoding, BatchShape, encode_batch, pad_batch
from headrace.text.model_files import VOCABULARY_FILES
from headrace.text.tokenizer import Tokenizer

# What save_pretrained copies.
_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    *VOCABULARY_FILES,
)
_MOST = 1 << 31  # transformers writes 1e30 where there is no limit
_OWN = ("padding_side", "truncation_side", "pad_token", "chat_template", "model_max_length")


class CallableTokenizer:
    """headrace's Tokenizer, called as those of transformers are.

        tokenizer(["a text", "another"], padding=True, return_tensors="np")["input_ids"]

    Unlike headrace's own, `encode` and calls add the model's special tokens unless told not to
    (truncation cuts them like others), and `apply_chat_template` adds no generation prompt unless
    told to.

    padding_side, truncation_side, pad_token, chat_template and model_max_length can be set.
    return_tensors: "pt" or "np" needs torch or numpy in this environment; None gives lists.
    Everything else is the Tokenizer's: eos_token_id, vocab_size, convert_ids_to_tokens...
    """

    model_input_names = ("input_ids", "attention_mask")
    adds_special_tokens = True  # unless told otherwise
    adds_generation_prompt = False  # likewise

    _tokenizer: Tokenizer
    padding_side: str
    truncation_side: str
    model_max_length: int | None
    pad_token: str | None
    chat_template: str | None

    def __init__(self, tokenizer: Tokenizer, padding_side: str | None = None) -> None:
        config = tokenizer.config
        limit = config.get("model_max_length")
        limited = isinstance(limit, (int, float)) and 0 < limit < _MOST
        set_field = super().__setattr__
        set_field("_tokenizer", tokenizer)
        set_field("padding_side", padding_side or config.get("padding_side") or "right")
        set_field("truncation_side", config.get("truncation_side") or "right")
        set_field("model_max_length", int(limit) if limit and limited else None)
        set_field("pad_token", tokenizer.pad_token)
        set_field("chat_template", tokenizer.chat_template)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_tokenizer":
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "pad_token" and value is not None:
            token = self._tokenizer.convert_tokens_to_ids(value)
            if token is None or self._tokenizer.convert_ids_to_tokens(token) != value:
                raise ValueError(f"pad_token {quoted(value)} is not in the vocabulary")
        elif name == "pad_token_id":
            name, value = "pad_token", self._tokenizer.convert_ids_to_tokens(value)
        if name not in _OWN:
            raise AttributeError(f"{name} can't be set here; these can: {', '.join(_OWN)}")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def is_fast(self) -> bool:
        """Whether it comes from a tokenizer.json."""
        return (self._tokenizer.folder / "tokenizer.json").is_file()

    @property
    def name_or_path(self) -> str:
        """The folder."""
        return str(self._tokenizer.folder)

    @property
    def pad_token_id(self) -> int | None:
        token = self.pad_token
        return None if token is None else self._tokenizer.convert_tokens_to_ids(token)

    def encode(
        self,
        text: str,
        add_special_tokens: bool | None = None,
        padding: bool | str | None = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        return_tensors: str | None = None,
        padding_side: str | None = None,
    ) -> Any:
        """The ids of a text, as the call below gives them."""
        encoded = self(
            text,
            add_special_tokens=add_special_tokens,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            padding_side=padding_side,
        )
        return encoded["input_ids"]

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool | None = None,
        padding: bool | str | None = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_attention_mask: bool | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
    ) -> BatchEncoding:
        """input_ids and attention_mask, of one text or of each. BatchShape has the arguments."""
        texts = [text] if isinstance(text, str) else list(text)
        wrong = next((item for item in texts if not isinstance(item, str)), None)
        if wrong is not None:
            raise TypeError(f"text must be a str or a list of them, got {quoted(wrong)}")
        special = self.adds_special_tokens if add_special_tokens is None else add_special_tokens
        return encode_batch(
            text if isinstance(text, str) else texts,
            lambda item: self._tokenizer.encode(item, special),
            self._shape(padding, truncation, max_length, pad_to_multiple_of, padding_side),
            self.pad_token_id,
            self.model_max_length,
            return_tensors,
            return_attention_mask,
        )

    def pad(
        self,
        encoded_inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        padding: bool | str | None = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
    ) -> BatchEncoding:
        """What calls gave, filled up to one length."""
        if isinstance(encoded_inputs, Mapping):
            rows = [list(row) for row in encoded_inputs["input_ids"]]
        else:
            rows = [list(item["input_ids"]) for item in encoded_inputs]
        shape = self._shape(padding, False, max_length, pad_to_multiple_of, padding_side)
        return pad_batch(
            rows,
            shape,
            self.pad_token_id,
            self.model_max_length,
            return_tensors,
            return_attention_mask,
        )

    def _shape(
        self,
        padding: bool | str | None,
        truncation: bool | str | None,
        max_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: str | None,
    ) -> BatchShape:
        side = padding_side or self.padding_side
        return BatchShape(
            padding, truncation, max_length, pad_to_multiple_of, side, self.truncation_side
        )

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """token_ids: an id, a list, or an array or tensor of one dimension.

        clean_up_tokenization_spaces: no effect; texts come as the model wrote them. True warns.
        """
        if clean_up_tokenization_spaces:
            warnings.warn("clean_up_tokenization_spaces=True has no effect", stacklevel=2)
        ids = token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids
        return self._tokenizer.decode(ids, skip_special_tokens)

    def batch_decode(
        self,
        sequences: Iterable[Any],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        return [
            self.decode(ids, skip_special_tokens, clean_up_tokenization_spaces) for ids in sequences
        ]

    def apply_chat_template(
        self,
        conversation: Sequence[Any] | Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        tokenize: bool = True,
        padding: bool | str | None = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_dict: bool = False,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> Any:
        """A conversation, or each of a list of them: text with `tokenize=False`, else ids, with
        `return_dict` as a call gives them. Raises TemplateError, UnsupportedError.
        """
        if continue_final_message:
            raise UnsupportedError("continue_final_message: leave it out, and append to the text")
        several = _are_conversations(conversation)
        conversations: Iterable[Any] = conversation if several else [conversation]
        own = self.chat_template
        prompt = add_generation_prompt
        prompt = self.adds_generation_prompt if prompt is None else prompt
        template = chat_template or (None if own == self._tokenizer.chat_template else own)
        texts = [
            self._tokenizer.apply_chat_template(item, tools, template, prompt, False, **variables)
            for item in conversations
        ]
        if not tokenize:
            return texts if several else texts[0]
        encoded = self(
            texts if several else texts[0],
            add_special_tokens=False,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
        )
        return encoded if return_dict else encoded["input_ids"]

    def get_vocab(self) -> dict[str, int]:
        """Every spelling with its id."""
        spelled = (
            (self._tokenizer.convert_ids_to_tokens(token), token) for token in range(len(self))
        )
        return {spelling: token for spelling, token in spelled if spelling is not None}

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """Copies the tokenizer's files into a folder, which is made; returns their new paths."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        source = self._tokenizer.folder
        names = [name for name in _FILES if (source / name).is_file()]
        if folder.resolve() != source.resolve():
            for name in names:
                shutil.copyfile(source / name, folder / name)
        return tuple(str(folder / name) for name in names)


def _are_conversations(value: Any) -> bool:
    if isinstance(value, Mapping) or not value:
        return False
    first = value[0]
    return isinstance(first, (list, tuple)) or (isinstance(first, Mapping) and "messages" in first)
