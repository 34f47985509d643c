"""A tokenizer.json for each pipeline of the common model families, with small vocabularies that the
`tokenizers` package trains."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

Spec = dict[str, Any]

_TAIL = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
R2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + _TAIL
R3 = R2.replace("{1,3}", "")
R4 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+" + _TAIL
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
R5 = (
    f"{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|"
    r"\p{N}{1,3}|" + _O200K_TAIL
)
R6 = rf"{_UPPER}*{_LOWER}+|{_UPPER}+{_LOWER}*|\p{{N}}|" + _O200K_TAIL
R7 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_GPT2 = {**_BYTE_LEVEL, "use_regex": True}


@functools.cache
def corpus() -> str:
    """The same text every time: this repository's own, in several scripts."""
    root = Path(__file__).parents[4]
    names = (
        "README.md",
        "CONTRIBUTING.md",
        "python/headrace/quoting.py",
        "cpp/text/fuel.h",
    )
    texts = [(root / name).read_text(encoding="utf-8") for name in names]
    rng = random.Random(1)
    foreign = (
        "Привет", "мир", "Γειά", "σου", "κόσμε", "नमस्ते", "दुनिया", "مرحبا", "你好世界", "日本語",
        "한국어", "café", "naïve", "Ünïcödé",
    )  # fmt: skip
    texts += [" ".join(rng.choice(foreign) for _ in range(2000))]
    return "\n".join(texts)


def _lines() -> Iterator[str]:
    yield from corpus().splitlines(keepends=True)


@functools.cache
def byte_level_model() -> str:
    own = tokenizers.Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(_lines(), trainer)
    return own.to_str()


@functools.cache
def piece_model() -> str:
    """As a sentencepiece vocabulary: characters, bytes, "▁" for spaces, tokens beyond words."""
    own = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)  # type: ignore[arg-type]
    )
    own.normalizer = normalizers.Replace(" ", "▁")
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=2200,
        special_tokens=["<unk>", "<s>", "</s>", *names],
        show_progress=False,
        limit_alphabet=200,
    )
    own.train_from_iterator(_lines(), trainer)
    spec: Spec = json.loads(own.to_str())
    added = [token for token in spec["added_tokens"] if token["id"] < 3]
    return json.dumps({**spec, "added_tokens": added})


def _split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Spec:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": behavior,
        "invert": invert,
    }


def _sequence(*steps: Spec) -> Spec:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _template(start: list[str], end: list[str], ids: dict[str, int]) -> Spec:
    def piece(name: str) -> Spec:
        return {"SpecialToken": {"id": name, "type_id": 0}}

    middle = [{"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*map(piece, start), *middle, *map(piece, end)],
        "pair": [*middle, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [name]}
            for name, token_id in ids.items()
        },
    }


def added_token(token_id: int, content: str, **flags: bool) -> Spec:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **{name: flags.get(name, False) for name in names}}


def _with(base: str, **parts: Any) -> Spec:
    """model: what is changed of it."""
    spec: Spec = {**json.loads(base), "normalizer": None, "post_processor": None, **parts}
    spec["model"] = {**json.loads(base)["model"], **parts.get("model", {})}
    return spec


def _byte_level(pre: Spec, **parts: Any) -> Spec:
    size = len(json.loads(byte_level_model())["model"]["vocab"])
    added = [
        added_token(size, "<|begin|>", special=True),
        added_token(size + 1, "<|end|>", special=True),
        added_token(size + 2, "<think>"),
    ]
    parts.setdefault("added_tokens", added)
    parts.setdefault("decoder", _BYTE_LEVEL)
    return _with(byte_level_model(), pre_tokenizer=pre, **parts)


def _byte_level_specs() -> Iterator[tuple[str, Spec]]:
    size = len(json.loads(byte_level_model())["model"]["vocab"])
    yield "gpt2", _byte_level(_GPT2, post_processor=_GPT2)
    yield (
        "gpt2_prefix",
        _byte_level(
            {**_GPT2, "add_prefix_space": True},
            post_processor={
                "type": "RobertaProcessing",
                "sep": ["<|end|>", size + 1],
                "cls": ["<|begin|>", size],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
        ),
    )
    yield "smollm2", _byte_level(_sequence({"type": "Digits", "individual_digits": True}, _GPT2))
    template = _template(["<|begin|>"], [], {"<|begin|>": size})
    llama = {"type": "Sequence", "processors": [_BYTE_LEVEL, template]}
    merges = {"ignore_merges": True}
    yield (
        "llama3",
        _byte_level(_sequence(_split(R2), _BYTE_LEVEL), post_processor=llama, model=merges),
    )
    yield (
        "qwen2",
        _byte_level(
            _sequence(_split(R3), _BYTE_LEVEL),
            normalizer={"type": "NFC"},
            post_processor={**_BYTE_LEVEL, "trim_offsets": False},
        ),
    )
    yield "qwen3.5", _byte_level(_sequence(_split(R4), _BYTE_LEVEL), normalizer={"type": "NFC"})
    yield "o200k", _byte_level(_sequence(_split(R5), _BYTE_LEVEL))
    yield "tekken", _byte_level(_sequence(_split(R6), _BYTE_LEVEL), model=merges)
    yield (
        "deepseek",
        _byte_level(
            _sequence(*map(_split, R7), _BYTE_LEVEL),
            normalizer={"type": "Sequence", "normalizers": []},
        ),
    )
    yield "olmo2", _byte_level(_sequence(_split(R2, "Removed", True), _BYTE_LEVEL))
    spaces = [added_token(size + i, " " * (i + 2), normalized=True) for i in range(6)]
    mask = added_token(size + 6, "[MASK]", lstrip=True, special=True)
    yield (
        "modernbert",
        _byte_level(
            _GPT2, normalizer={"type": "NFC"}, added_tokens=[*spaces, mask], post_processor=_GPT2
        ),
    )


_PIECE_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def _piece_specs() -> Iterator[tuple[str, Spec]]:
    model = piece_model()
    legacy = {
        "type": "Sequence",
        "normalizers": [{"type": "Prepend", "prepend": "▁"}, _SPACES],
    }
    parts: Spec = {
        "decoder": _PIECE_DECODER,
        "post_processor": _template(["<s>"], [], {"<s>": 1}),
    }
    yield "llama2", _with(model, normalizer=legacy, pre_tokenizer=None, **parts)
    own: Spec = json.loads(model)
    stripped = [{**token, "rstrip": token["id"] == 2} for token in own["added_tokens"]]
    yield (
        "phi3",
        _with(model, normalizer=legacy, pre_tokenizer=None, added_tokens=stripped, **parts),
    )
    metaspace = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    yield "mistral", _with(model, pre_tokenizer=metaspace, **parts)
    gemma = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    yield "gemma", _with(model, normalizer=_SPACES, pre_tokenizer=gemma, **parts)
    yield "gemma4", _with(model, normalizer=_SPACES, pre_tokenizer=_split(r"[^\n]+|[\n]+"), **parts)
    yield "ernie", _with(model, normalizer=_SPACES, pre_tokenizer=None, decoder=_PIECE_DECODER)
    unknown = {"byte_fallback": False}
    yield "unknown", _with(model, normalizer=_SPACES, pre_tokenizer=None, model=unknown, **parts)
    unfused = {"byte_fallback": False, "fuse_unk": False}
    yield "unfused", _with(model, normalizer=_SPACES, pre_tokenizer=None, model=unfused, **parts)
    nothing = {"byte_fallback": False, "unk_token": None}
    yield "vanishing", _with(model, normalizer=_SPACES, pre_tokenizer=None, model=nothing, **parts)


@functools.cache
def specs() -> dict[str, Spec]:
    return {**dict(_byte_level_specs()), **dict(_piece_specs())}
