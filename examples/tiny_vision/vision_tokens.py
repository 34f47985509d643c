"""The tiny vision model's tokenizer and chat template, and the tokens of a training dialogue."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

import beside  # noqa: F401 (finds the tiny model's modules)
from pictures import FACTOR, Picture
from questions import Dialogue, training_dialogue
from scenes import SCENES, SIZES
from tokens import (
    ASSISTANT,
    BEGIN,
    BOS,
    END,
    EOS,
    EOS_ID,
    SPECIAL_TOKENS,
    UNK,
    USER,
    byte_level_bpe,
)

PAD, IMAGE_START, IMAGE_END = "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>"
VIDEO_START, VIDEO_END = "<|VIDEO_START|>", "<|VIDEO_END|>"
VISION_TOKENS = (PAD, IMAGE_START, IMAGE_END, VIDEO_START, VIDEO_END)
VOCAB_SIZE = 704
TEXT_SIZE = VOCAB_SIZE - len(VISION_TOKENS)  # ids from here on are the vision experts'

# The conversation as ERNIE-4.5-VL writes it: items are counted, and their rows come to stand where
# the marks are.
CHAT_TEMPLATE = """\
{%- if add_generation_prompt is not defined -%}
    {%- set add_generation_prompt = true -%}
{%- endif -%}
{%- set seen = namespace(images=0, videos=0) -%}
{{- "<|begin_of_sentence|>" -}}
{%- for message in messages -%}
    {%- if message["role"] == "user" -%}
        {{- "User: " -}}
    {%- elif message["role"] == "assistant" -%}
        {{- "\\nAssistant: " -}}
    {%- endif -%}
    {%- if message["content"] is string -%}
        {{- message["content"] -}}
    {%- else -%}
        {%- for part in message["content"] -%}
            {%- if part["type"] in ("image", "image_url") -%}
                {%- set seen.images = seen.images + 1 -%}
                {{- "Picture " ~ seen.images -}}
                {{- ":<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>" -}}
            {%- elif part["type"] in ("video", "video_url") -%}
                {%- set seen.videos = seen.videos + 1 -%}
                {{- "Video " ~ seen.videos -}}
                {{- ":<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>" -}}
            {%- else -%}
                {{- part["text"] -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {%- if message["role"] == "system" -%}
        {{- "\\n" -}}
    {%- elif message["role"] == "assistant" -%}
        {{- "<|end_of_sentence|>" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "\\nAssistant: " -}}
{%- endif -%}
"""


def train_tokenizer(seed: int, dialogues: int = 4_000) -> Tokenizer:
    """Byte-level BPE over generated dialogues; the ids of vision tokens lie above all others."""
    rng = random.Random(seed)

    def texts() -> list[str]:
        kind = rng.choice((*SCENES, "talk"))
        dialogue = training_dialogue(rng, kind, rng.choice(SIZES), 4)
        pieces = ["Picture 1:", "Video 1:", dialogue.system or ""]
        for exchange in dialogue.exchanges:
            pieces += [exchange.question, exchange.reply]
        return pieces

    made = (text for _ in range(dialogues) for text in texts())
    tokenizer = byte_level_bpe(made, SPECIAL_TOKENS, TEXT_SIZE - 2)
    tokenizer.add_tokens([AddedToken(role, normalized=False) for role in (USER, ASSISTANT)])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in VISION_TOKENS])
    if tokenizer.get_vocab_size() != VOCAB_SIZE or tokenizer.token_to_id(PAD) != TEXT_SIZE:
        raise RuntimeError(f"{tokenizer.get_vocab_size()} tokens instead of {VOCAB_SIZE}")
    return tokenizer


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids, the token to predict at each place (and whether it belongs to a reply), the three
    positions of each token, and the picture, if there is one."""

    ids: list[int]
    labels: list[int]
    is_reply: list[bool]
    positions: list[tuple[int, int, int]]
    picture: Picture | None


def media_text(picture: Picture) -> tuple[str, tuple[int, int, int]]:
    """What stands for a picture or a clip in a prompt, and how many rows there are over time,
    height and width."""
    grid = ((picture.frames + 1) // 2, picture.height // FACTOR, picture.width // FACTOR)
    pads = PAD * (grid[0] * grid[1] * grid[2])
    if picture.frames > 1:
        return f"Video 1:{VIDEO_START}{pads}{VIDEO_END}", grid
    return f"Picture 1:{IMAGE_START}{pads}{IMAGE_END}", grid


class Encoder:
    """Turns dialogues into training examples."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._assistant = tokenizer.token_to_id(ASSISTANT)
        self._end = tokenizer.token_to_id(END)

    def prompt(self, dialogue: Dialogue) -> str:
        """The text of a whole dialogue, as the chat template writes it, with its rows."""
        shown = media_text(dialogue.scene.picture)[0] if dialogue.scene else ""
        parts = [BEGIN, f"{dialogue.system}\n" if dialogue.system else ""]
        for exchange in dialogue.exchanges:
            parts += [USER, shown, exchange.question, f"\n{ASSISTANT}{exchange.reply}{END}"]
            shown = ""
        return "".join(parts)

    def dialogue(self, dialogue: Dialogue) -> Example:
        """A reply ends by predicting </s>, though in the history <|end_of_sentence|> follows it."""
        ids = self._tokenizer.encode(self.prompt(dialogue), add_special_tokens=False).ids
        labels = [EOS_ID if token == self._end else token for token in ids[1:]]
        is_reply, inside = [], False
        for token in ids[:-1]:
            inside = token == self._assistant or (inside and token != self._end)
            is_reply.append(inside)
        picture = dialogue.scene.picture if dialogue.scene else None
        grid = media_text(picture)[1] if picture else (0, 0, 0)
        return Example(ids[:-1], labels, is_reply, positions(ids[:-1], grid), picture)


def positions(ids: list[int], grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Of every token over time, height and width: text counts on, the rows of the item spread from
    where it begins, and text goes on above the largest of them."""
    found: list[tuple[int, int, int]] = []
    following, row = 0, 0
    _, height, width = grid
    for token in ids:
        if token != TEXT_SIZE:
            found.append((following, following, following))
            following += 1
            continue
        time, rest = divmod(row, height * width)
        found.append((following + time, following + rest // width, following + rest % width))
        row += 1
        if row == grid[0] * height * width:
            following += max(grid)
    return found


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """tokenizer.json and tokenizer_config.json, which has the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNK,
        "pad_token": UNK,
        "bos_token": BOS,
        "eos_token": EOS,
        "cls_token": BEGIN,
        "sep_token": END,
        "additional_special_tokens": list(VISION_TOKENS),
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
