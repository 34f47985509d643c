"""Conversations with pictures for the tiny vision models: make_vision_chat.py writes their goldens,
and LLM.chat is asked them in the tests. Sizes fit the patches: nothing is resized."""

from __future__ import annotations

import dataclasses
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
    "qwen3_5": [
        [("noise", 24, 40), "What is it?!"],
        ["See: ", (4, 16, 24), "or", ("slope", 16, 8), "?!"],
    ],
    "smolvlm": [
        [("noise", 32, 32), "What is it?"],
        ["First ", ("slope", 32, 32), " and ", ("noise", 32, 32), ": what differs?"],
        [(3, 32, 32), "What moves?!"],
    ],
    "gemma3": [
        [("noise", 32, 32), "What is it?!"],
        ["First ", ("slope", 32, 32), " and ", ("noise", 32, 32), ": What's it"],
        ["What is that?"],
    ],
    "ernie4_5_vl_moe": [
        ["Hello!"],
        [("noise", 24, 40), "What is it!"],
        ["First ", ("slope", 8, 8), " and ", ("noise", 32, 16), ": compare."],
        [(4, 16, 24), "What moves?", ("slope", 16, 8)],
        [(7, 16, 16), "What moves, and where?"],
    ],
}


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """What a family's tokenizer has beside letters, and what its template writes.

    special: from 0 on. places: the ids that stand for images and clips, and those around them.
    marks: of an image and of a clip, and the id of a row. shown: what is written for them, {n}
    counts the items of a kind.
    """

    special: tuple[str, ...]
    places: dict[str, int]
    marks: dict[str, int]
    shown: tuple[str, str]
    before: str
    after: str


QWEN = Words(
    special=("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"),
    places={
        "<|image_pad|>": 250,
        "<|video_pad|>": 251,
        "<|vision_start|>": 252,
        "<|vision_end|>": 253,
    },
    marks={"<|image_pad|>": 250, "<|video_pad|>": 251},
    shown=(
        "<|vision_start|><|image_pad|><|vision_end|>",
        "<|vision_start|><|video_pad|><|vision_end|>",
    ),
    before="<|im_start|>user\n",
    after="<|im_end|>\n<|im_start|>assistant\n",
)
# Its marks are no tokens. Rows of images and of clips have one id.
ERNIE = Words(
    special=("<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<think>", "</think>"),
    places={
        "<|IMAGE_PLACEHOLDER|>": 250,
        "<|IMAGE_START|>": 252,
        "<|IMAGE_END|>": 253,
        "<|VIDEO_START|>": 254,
        "<|VIDEO_END|>": 255,
    },
    marks={"<|image@placeholder|>": 250, "<|video@placeholder|>": 250},
    shown=(
        "Picture {n}:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>",
        "Video {n}:<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>",
    ),
    before="<|begin_of_sentence|>User: ",
    after="\nAssistant: <think>",
)
# Images in one tile, clips frame by frame; the mark of a clip is no token.
SMOLVLM = Words(
    special=QWEN.special,
    places={
        "<image>": 250,
        "<fake_token_around_image>": 251,
        "<global-img>": 252,
        "<end_of_utterance>": 253,
    },
    marks={"<image>": 250, "<video>": 250},
    shown=("<image>", "<video>"),
    before="<|im_start|>User: ",
    after="<end_of_utterance>\nAssistant:",
)


# What its processor writes for an image, the mark among it, is around the rows. It takes no clips.
GEMMA = Words(
    special=("<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>"),
    places={"<image_soft_token>": 250, "<start_of_image>": 252, "<end_of_image>": 253},
    marks={"<start_of_image>": 250, "<no clip>": 250},
    shown=("<start_of_image>", "<no clip>"),
    before="<start_of_turn>user\n",
    after="<end_of_turn>\n<start_of_turn>model\n",
)


def words_of(name: str) -> Words:
    """Of a golden case."""
    if name.startswith("gemma"):
        return GEMMA
    if is_tiled(name):
        return SMOLVLM
    return ERNIE if name.startswith("ernie") else QWEN


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


def rendered(pieces: list[Piece], words: Words = QWEN) -> str:
    """What the chat template makes of it."""
    text = words.before
    counts = [0, 0]
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            kind = int(is_clip(piece))
            counts[kind] += 1
            text += words.shown[kind].format(n=counts[kind])
    return text + words.after


def tokenizer(words: Words = QWEN) -> Tokenizer:
    """A token for each byte that texts here have, for a vocabulary of 256."""
    vocab = {name: number for number, name in enumerate(words.special)}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet())[: 250 - len(vocab)]:
        vocab[letter] = len(vocab)
    made = Tokenizer(models.BPE(vocab={**vocab, **words.places}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*words.special, *words.places])
    return made
