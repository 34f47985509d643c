"""Decoding, token by token and at once, is the `tokenizers` package's; stop strings end outputs
where a plain search says."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import text_cases
import tokenizers
from output_oracle import OutputOracle

from headrace import _core

TOKENS = (
    "a", "b", "▁a", "▁", "▁▁b", " c", "c ", "##d", "e</w>", "f</w>g", ".", "n't", "do not", " ",
    "é", "Ġ", "Ġa", "Ã", "©", "ä½", "ł", "ðŁ", "Ļ", "</w>", "▁é▁", " 's", "龍", "🙂", "<0x4g>",
    "<0x+4>", "<0xe4>", *(f"<0x{byte:02X}>" for byte in b"\xe4\xbd\xa0\x41\xff\x20\xc3\xa9\x90"),
)  # fmt: skip
SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
BYTE_LEVEL: dict[str, Any] = {"type": "ByteLevel"}
BYTE_LEVEL |= dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), True)
FUSE, BYTES = {"type": "Fuse"}, {"type": "ByteFallback"}
WORDS = {"type": "WordPiece", "prefix": "##", "cleanup": True}
MARKS: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": "[a▁]+"}, "content": "ab"}
EDGES: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": "^|c?$"}, "content": "-"}
DECODERS: dict[str, Any] = {
    "none": None,
    "byte level": BYTE_LEVEL,
    "byte fallback": BYTES,
    "llama": {"type": "Sequence", "decoders": [SPACE, BYTES, FUSE, STRIP]},
    "gemma": {"type": "Sequence", "decoders": [SPACE, BYTES, FUSE]},
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "metaspace, never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"},
    "word piece": WORDS,
    "word piece, raw": WORDS | {"cleanup": False},
    "suffix": {"type": "BPEDecoder", "suffix": "</w>"},
    "strip": STRIP,
    "bytes, then words": {"type": "Sequence", "decoders": [BYTES, WORDS]},
    "expressions": {"type": "Sequence", "decoders": [MARKS, FUSE, EDGES]},
    "at the end": {"type": "Sequence", "decoders": [FUSE, WORDS, BYTE_LEVEL]},
}


def random_step(rng: random.Random) -> Any:
    text = rng.choice(("▁", "a", "do", "e</w>", "é", " ", ""))
    return rng.choice(
        (
            BYTE_LEVEL,
            BYTES,
            FUSE,
            {"type": "Replace", "pattern": {"String": text}, "content": rng.choice(" x▁龍")},
            STRIP | {"content": rng.choice(" ▁aé"), "start": rng.randrange(3)},
            DECODERS["metaspace"] | {"prepend_scheme": rng.choice(("always", "never", "first"))},
            WORDS | {"cleanup": rng.random() < 0.5},
            {"type": "BPEDecoder", "suffix": text},
        )
    )


def both(folder: Path, decoder: Any) -> tuple[Any, tokenizers.Tokenizer]:
    size = len(TOKENS)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": size, "content": "<added é>", "special": False, **flags},
        {"id": size + 1, "content": "<special>", "special": True, **flags},
        {"id": size + 2, "content": "<end>", "special": True, **flags},
    ]
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": []}
    spec = json.dumps({"version": "1.0", "added_tokens": added, "decoder": decoder, "model": model})
    (folder / "tokenizer.json").write_text(spec)
    return _core.TextTokenizer(str(folder)), tokenizers.Tokenizer.from_str(spec)


def random_ids(rng: random.Random) -> list[int]:
    return [rng.randrange(len(TOKENS) + 5) for _ in range(rng.randrange(16))]


def check_decoding(own: Any, package: tokenizers.Tokenizer, rng: random.Random) -> None:
    ids, skip = random_ids(rng), rng.random() < 0.5
    expected = package.decode(ids, skip_special_tokens=skip)
    assert own.decode(ids, skip) == expected, ids
    detokenizer = _core.Detokenizer(own, skip)
    pieces: list[str] = []
    for count, token_id in enumerate(ids, start=1):
        pieces.append(detokenizer.push(token_id))
        if not detokenizer.holding:
            assert "".join(pieces) == own.decode(ids[:count], skip), ids
    assert "".join([*pieces, detokenizer.finish()]) == expected, ids


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder(tmp_path: Path, name: str) -> None:
    own, package = both(tmp_path, DECODERS[name])
    rng = random.Random(name)
    for _ in range(max(60, text_cases.CASES)):
        check_decoding(own, package, rng)


def test_random_chains(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(max(30, text_cases.CASES // 20)):
        steps = [random_step(rng) for _ in range(rng.randint(1, 5))]
        own, package = both(tmp_path, {"type": "Sequence", "decoders": steps})
        for _ in range(10):
            check_decoding(own, package, rng)


def _decoded(start: Any, ids: list[int]) -> str:
    detokenizer = start()
    return "".join([*map(detokenizer.push, ids), detokenizer.finish()])


def _some_stops(rng: random.Random, text: str) -> list[str]:
    places = [rng.randrange(len(text) + 1) for _ in range(rng.randrange(4))]
    stops = [text[place : place + rng.randint(1, 4)] for place in places]
    return [stop for stop in stops if stop] + rng.choice(([], ["a▁"], ["é"], ["zz"]))


def _check_output(own: Any, rng: random.Random) -> None:
    ids, after = random_ids(rng), random_ids(rng) if rng.random() < 0.3 else []
    shown = ["<end>"] if rng.random() < 0.3 else []
    start = partial(_core.Detokenizer, own, True, shown, after)
    stops = _some_stops(rng, _decoded(start, ids))
    keeps, least = rng.random() < 0.3, rng.choice((0, 0, 2, 5))
    expected = OutputOracle(start, stops, min_tokens=least, keeps_string=keeps)
    output = _core.OutputText(
        start(),
        _core.StopStrings(stops) if stops else None,
        min_tokens=least,
        keeps_string=keeps,
    )
    case = (ids, after, shown, stops, keeps, least)
    for token_id in [*ids, None]:
        if token_id is None:
            assert output.finish() == expected.finish(), case
        else:
            assert output.push(token_id) == expected.push(token_id), case
        assert output.released == expected.released, case
        match = output.match
        places = None if match is None else (match.string, match.start, match.end)
        assert places == expected.match, case


@pytest.mark.parametrize("name", ["byte level", "llama", "word piece", "suffix", "none"])
def test_stop_strings_end_outputs(tmp_path: Path, name: str) -> None:
    own, _ = both(tmp_path, DECODERS[name])
    rng = random.Random(name)
    for _ in range(max(80, text_cases.CASES)):
        _check_output(own, rng)


def test_bad_stop_strings() -> None:
    with pytest.raises(ValueError, match="empty"):
        _core.StopStrings([""])
    with pytest.raises(UnicodeEncodeError):
        _core.StopStrings(["\ud800"])
