"""The tiny model's tokenizer, chat template, and the tokens of a training dialogue."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from dialogues import Dialogue, training_dialogue, training_text

UNK, BOS, EOS = "<unk>", "<s>", "</s>"
BEGIN, END = "<|begin_of_sentence|>", "<|end_of_sentence|>"
USER, ASSISTANT = "User: ", "Assistant: "
SPECIAL_TOKENS = (UNK, BOS, EOS, BEGIN, END)
UNK_ID, BOS_ID, EOS_ID = 0, 1, 2

VOCAB_SIZE = 2048
IGNORE = -100  # the label of a position without loss

# The conversation as ERNIE-4.5 writes it: one <|begin_of_sentence|>, the system prompt on its own
# line, and every finished reply closed by <|end_of_sentence|>.
CHAT_TEMPLATE = """\
{%- if add_generation_prompt is not defined -%}
    {%- set add_generation_prompt = true -%}
{%- endif -%}
{{- "<|begin_of_sentence|>" -}}
{%- for message in messages -%}
    {%- if message["role"] == "system" -%}
        {{- message["content"] + "\\n" -}}
    {%- elif message["role"] == "user" -%}
        {{- "User: " + message["content"] + "\\n" -}}
    {%- elif message["role"] == "assistant" -%}
        {{- "Assistant: " + message["content"] + "<|end_of_sentence|>" -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "Assistant: " -}}
{%- endif -%}
"""

# Each Han character, digit, word with its space before, run of signs and run of spaces is a piece
# of its own; merges never cross pieces.
_HAN = r"\p{Han}"
_PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level_bpe(texts: Iterable[str], special_tokens: Sequence[str], size: int) -> Tokenizer:
    """Byte-level BPE of `size` tokens, the special ones first: every text has tokens and comes back
    unchanged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_HAN), behavior="isolated"),
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_tokenizer(seed: int, dialogues: int = 40_000) -> Tokenizer:
    """The tokenizer of generated dialogues."""
    rng = random.Random(seed)

    def texts() -> list[str]:
        dialogue = training_dialogue(rng)
        return [message["content"] for message in dialogue.messages()]

    made = (text for _ in range(dialogues) for text in texts())
    tokenizer = byte_level_bpe(made, SPECIAL_TOKENS, VOCAB_SIZE - 2)
    # One token each, so that a reply has the same tokens when generated and when read as history.
    tokenizer.add_tokens([AddedToken(role, normalized=False) for role in (USER, ASSISTANT)])
    return tokenizer


def render(dialogue: Dialogue) -> str:
    """The text of a whole dialogue, as the chat template writes it."""
    parts = [BEGIN]
    for message in dialogue.messages():
        role, text = message["role"], message["content"]
        if role == "system":
            parts.append(f"{text}\n")
        elif role == "user":
            parts.append(f"{USER}{text}\n")
        else:
            parts.append(f"{ASSISTANT}{text}{END}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids, the token to predict at each place, and whether it belongs to a reply."""

    ids: list[int]
    labels: list[int]
    is_reply: list[bool]


class Encoder:
    """Turns dialogues and plain texts into training examples."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._assistant = tokenizer.token_to_id(ASSISTANT)
        self._end = tokenizer.token_to_id(END)

    def dialogue(self, dialogue: Dialogue) -> Example:
        """A reply ends by predicting </s>, though in the history <|end_of_sentence|> follows it."""
        ids = self._tokenizer.encode(render(dialogue), add_special_tokens=False).ids
        labels = [EOS_ID if token == self._end else token for token in ids[1:]]
        is_reply, inside = [], False
        for token in ids[:-1]:
            inside = token == self._assistant or (inside and token != self._end)
            is_reply.append(inside)
        return Example(ids[:-1], labels, is_reply)

    def text(self, text: str) -> Example:
        """Plain text without a template; its first tokens can't be known and aren't a reply."""
        ids = [*self._tokenizer.encode(text, add_special_tokens=False).ids, EOS_ID]
        return Example(ids[:-1], ids[1:], [i > 0 for i in range(len(ids) - 1)])

    def random(self, rng: random.Random, plain_share: float = 0.05) -> Example:
        """A random training example."""
        if rng.random() < plain_share:
            return self.text(training_text(rng))
        return self.dialogue(training_dialogue(rng))


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": UNK,
        "pad_token": UNK,
        "bos_token": BOS,
        "eos_token": EOS,
        "cls_token": BEGIN,
        "sep_token": END,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
