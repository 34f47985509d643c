"""Conversations with pictures for the tiny vision models: make_vision_chat.py writes their goldens,
and LLM.chat is asked them in the tests. Sizes fit the patches: nothing is resized."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).parent / "media"))

from media_pictures import frames, picture

Piece = str | tuple[str, int, int] | tuple[int, int, int]  # text, an image, a clip
FPS = 2.0  # of the clips

# (kind, height, width) is an image, (frames, height, width) a clip.
CONVERSATIONS: dict[str, list[list[Piece]]] = {
    "qwen2_vl": [
        ["Hello"],
        [("noise", 24, 40), "What is it?"],
        ["First ", ("slope", 8, 8), " and ", ("noise", 32, 16), ": compare."],
        [(4, 16, 24), "What moves?", ("slope", 16, 8)],
        # 4 grids of one row: what follows is one above the last grid, not, as in transformers 5.3
        # and later, above the first.
        ["Look: ", (8, 8, 8), "What moves?!"],
    ],
    "qwen2_5_vl": [
        [("noise", 40, 88), "What is it?!"],
        [("slope", 16, 24), "and", ("noise", 64, 32), "?"],
        [(6, 24, 40), "What moves?"],
    ],
    "qwen3_vl": [
        [("noise", 24, 40), "What is it?!"],
        [("slope", 64, 8), "and", ("noise", 32, 16), "?"],
        [(4, 24, 40), "What moves?"],
        ["See: ", (6, 16, 24), "and", ("slope", 16, 8), "?!"],
    ],
    "smolvlm": [
        [("noise", 32, 32), "What is it?"],
        ["First ", ("slope", 32, 32), " and ", ("noise", 32, 32), ": what differs?"],
        [(3, 32, 32), "What moves?!"],
    ],
}
SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2, "<|im_start|>": 3, "<|im_end|>": 4}
PLACES = {
    "<|image_pad|>": 250,
    "<|video_pad|>": 251,
    "<|vision_start|>": 252,
    "<|vision_end|>": 253,
}
TILED_PLACES = {
    "<image>": 250,
    "<fake_token_around_image>": 251,
    "<global-img>": 252,
    "<end_of_utterance>": 253,
}


def pixels(piece: Piece) -> NDArray[np.uint8]:
    """[height, width, 3] of an image, [frames, height, width, 3] of a clip."""
    assert not isinstance(piece, str)
    kind, height, width = piece
    if isinstance(kind, int):
        return frames(kind, height, width)
    return picture(kind, height, width)


def is_clip(piece: Piece) -> bool:
    return not isinstance(piece, str) and isinstance(piece[0], int)


def is_tiled(name: str) -> bool:
    return name == "smolvlm"


def rendered(name: str, pieces: list[Piece]) -> str:
    """What the chat template makes of it."""
    if is_tiled(name):
        marks = (
            p if isinstance(p, str) else "<video>" if is_clip(p) else "<image>" for p in pieces
        )
        return f"<|im_start|>User: {''.join(marks)}<end_of_utterance>\nAssistant:"
    text = "<|im_start|>user\n"
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            pad = "<|video_pad|>" if is_clip(piece) else "<|image_pad|>"
            text += f"<|vision_start|>{pad}<|vision_end|>"
    return text + "<|im_end|>\n<|im_start|>assistant\n"


def tokenizer(name: str) -> Tokenizer:
    """A token for each byte that texts here have, for a vocabulary of 256."""
    places = TILED_PLACES if is_tiled(name) else PLACES
    vocab = dict(SPECIAL)
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet())[: 250 - len(SPECIAL)]:
        vocab[letter] = len(vocab)
    made = Tokenizer(models.BPE(vocab={**vocab, **places}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*SPECIAL, *places])
    return made
