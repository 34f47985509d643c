"""Calling a tokenizer as transformers' are called: several texts, padding, truncation, arrays."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.quoting import quoted

Rows = list[list[int]]
_NO_PADDING = (False, None, "do_not_pad")
_LONGEST = (True, "longest")
_TRUNCATES = (True, "longest_first", "only_first")


class BatchEncoding(dict[str, Any]):
    """input_ids and attention_mask, by key or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> BatchEncoding:
        """Moves tensors of torch; lists and numpy's arrays stay where they are."""
        for name, value in self.items():
            if hasattr(value, "to"):
                self[name] = value.to(device)
        return self


@dataclass(frozen=True, slots=True)
class BatchShape:
    """How rows are cut and filled up.

    padding: False, True or "longest" (to the longest row), or "max_length".
    truncation: True cuts to max_length; None does so if max_length is given and padding is off.
    padding_side, truncation_side: "left" or "right".
    """

    padding: bool | str | None = False
    truncation: bool | str | None = None
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    padding_side: str = "right"
    truncation_side: str = "right"

    def __post_init__(self) -> None:
        if self.padding not in (*_NO_PADDING, *_LONGEST, "max_length"):
            raise ValueError(
                "padding must be True, False, 'longest', 'max_length' or 'do_not_pad', got "
                + quoted(self.padding)
            )
        if self.truncation not in (None, False, "do_not_truncate", *_TRUNCATES):
            raise ValueError(
                "truncation must be True, False, 'longest_first', 'only_first' or "
                f"'do_not_truncate', got {quoted(self.truncation)}"
            )
        for name in ("padding_side", "truncation_side"):
            side = getattr(self, name)
            if side not in ("left", "right"):
                raise ValueError(f"{name} must be 'left' or 'right', got {quoted(side)}")

    def cut(self, rows: Rows, model_max_length: int | None) -> Rows:
        """Rows of at most max_length, else of what the model takes."""
        implied = self.max_length is not None and self.padding in _NO_PADDING
        if not (self.truncation in _TRUNCATES or (self.truncation is None and implied)):
            return rows
        longest = self.max_length if self.max_length is not None else model_max_length
        if longest is None:
            warnings.warn("truncation has no effect: there is no max_length", stacklevel=4)
            return rows
        if self.truncation_side == "left":
            return [row[max(0, len(row) - longest) :] for row in rows]
        return [row[:longest] for row in rows]

    def width(self, rows: Rows, model_max_length: int | None) -> int | None:
        """What rows are filled up to; None: they aren't."""
        if self.padding in _NO_PADDING:
            return None
        width = max(map(len, rows), default=0)
        if self.padding == "max_length":
            longest = self.max_length if self.max_length is not None else model_max_length
            if longest is None:
                raise ValueError("padding='max_length' needs a max_length")
            width = longest
        step = self.pad_to_multiple_of or 1
        return -(-width // step) * step

    def fill(self, rows: Rows, width: int | None, value: int) -> Rows:
        if width is None:
            return rows
        fillings = [[value] * (width - len(row)) for row in rows]
        left = self.padding_side == "left"
        return [f + row if left else row + f for row, f in zip(rows, fillings, strict=True)]


def encode_batch(
    text: str | Sequence[str],
    encode: Callable[[str], list[int]],
    shape: BatchShape,
    pad_token_id: int | None,
    model_max_length: int | None,
    return_tensors: str | None,
    return_attention_mask: bool | None = True,
) -> BatchEncoding:
    """One text, whose ids stand alone unless tensors are asked for, or several.

    Raises ValueError for padding without a padding token, and for rows that make no tensor.
    """
    texts = [text] if isinstance(text, str) else text
    rows = shape.cut([encode(item) for item in texts], model_max_length)
    return pad_batch(
        rows,
        shape,
        pad_token_id,
        model_max_length,
        return_tensors,
        return_attention_mask,
        one=isinstance(text, str),
    )


def pad_batch(
    rows: Rows,
    shape: BatchShape,
    pad_token_id: int | None,
    model_max_length: int | None,
    return_tensors: str | None,
    return_attention_mask: bool | None = True,
    one: bool = False,
) -> BatchEncoding:
    """The rows filled up, with their masks; `one`: the only one without its list."""
    width = shape.width(rows, model_max_length)
    if width is not None and pad_token_id is None:
        raise ValueError(
            "padding needs a padding token, and this tokenizer has none: set tokenizer.pad_token, "
            "for instance to tokenizer.eos_token"
        )
    values = {"input_ids": shape.fill(rows, width, pad_token_id or 0)}
    if return_attention_mask is not False:
        values["attention_mask"] = shape.fill([[1] * len(row) for row in rows], width, 0)
    if return_tensors is not None:
        return BatchEncoding({name: to_tensor(v, return_tensors) for name, v in values.items()})
    return BatchEncoding({name: v[0] if one else v for name, v in values.items()})


def to_tensor(rows: Rows, kind: str) -> Any:
    """A tensor of torch ("pt") or an array of numpy ("np"), as far as they are installed."""
    package = {"pt": "torch", "np": "numpy"}.get(kind)
    if package is None:
        raise ValueError(f"return_tensors must be None, 'pt' or 'np', got {quoted(kind)}")
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows of different lengths make no tensor: pass one text, or padding=True")
    module = importlib.import_module(package)
    return module.tensor(rows) if kind == "pt" else module.array(rows)
