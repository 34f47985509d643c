"""Folders of encoders: golden checkpoints with tokenizers of letters."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

from model_folders import write_json
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

ENCODERS = Path(__file__).resolve().parents[2] / "golden" / "encoders"
_LETTERS = string.ascii_lowercase + string.digits + ".,?!"


def encoder_golden(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((ENCODERS / name / "golden.json").read_text())
    return found


def wordpiece() -> Tokenizer:
    """BERT's normalizer, splitter and template over single letters."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), "what", "paris", "##ing"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def unigram() -> Tokenizer:
    """XLM-RoBERTa's: no token types."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = [*special, "▁", *_LETTERS, "▁what", "▁paris", "ing"]
    scores = [0.0] * 4 + [-float(2 + index) / len(word) for index, word in enumerate(words[4:])]
    tokenizer = Tokenizer(models.Unigram(list(zip(words, scores, strict=True)), 3))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def encoder_folder(name: str, folder: Path, tokenizer: Tokenizer | None = None) -> Path:
    """The checkpoint of a golden case of an encoder."""
    shutil.copytree(ENCODERS / name, folder, ignore=shutil.ignore_patterns("golden.*"))
    (tokenizer or wordpiece()).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {})
    return folder
