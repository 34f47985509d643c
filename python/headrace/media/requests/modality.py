"""Models whose experts a token's id chooses: text below a number, images and clips from it on."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import MediaError, TokenizerError
from headrace.media.families import FAMILIES
from headrace.text.model_files import read_json
from headrace.text.tokenizer import Tokenizer

_KEYS = ("im_patch_id", "image_token_id", "max_text_id")
_DEFAULT = 100295
# What a model writes around its thoughts and calls. The engine takes such a token by its id alone.
_TEXTS = ("<think>", "</think>", "<response>", "</response>", "<tool_call>", "</tool_call>")


def check_modality_tokens(folder: Path, tokenizer: Tokenizer | None) -> None:
    """Raises MediaError for a tokenizer that doesn't fit the model in `folder`: whose tokens of
    text would go to the experts of vision, or whose token of images to those of text."""
    try:
        config = read_json(folder / "config.json")
    except TokenizerError:
        return  # the engine says what is wrong with it
    model_type = config.get("model_type")
    family = next((one for one in FAMILIES if one.splits_tokens), None)
    if tokenizer is None or family is None or model_type not in family.model_types:
        return
    key = next((name for name in _KEYS if config.get(name) is not None), _KEYS[0])
    first = config.get(key, _DEFAULT)
    if not isinstance(first, int):
        return
    for text in _TEXTS:
        ids = tokenizer.encode(text)
        if len(ids) == 1 and ids[0] >= first:
            raise MediaError(
                f"the tokenizer's {text} is token {ids[0]}, but tokens from {key} ({first}) on are "
                "those of images here: the model's tokenizer files don't fit its config.json"
            )
    for pad in (family.image_pad, family.video_pad):
        ids = tokenizer.encode(pad)
        if len(ids) == 1 and ids[0] < first:
            raise MediaError(
                f"the tokenizer's {pad} is token {ids[0]}, but those of images begin with {key} "
                f"({first}): the model's tokenizer files don't fit its config.json"
            )
