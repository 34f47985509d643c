"""headrace embed."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from headrace import LLM, shipped_model
from headrace.cli import main

ENGINE = ["--max-model-len", "256", "--threads", "1"]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", *ENGINE, "--dimensions", "6", "Hello", "One more"]) == 0
    records = lines(capsys)
    assert [record["index"] for record in records] == [0, 1]
    with LLM(shipped_model(), max_model_len=256, num_threads=1) as llm:
        expected = llm.embed(["Hello", "One more"], dimensions=6, use_tqdm=False)
    assert [r["embedding"] for r in records] == [e.outputs.embedding for e in expected]
    assert main(["embed", *ENGINE, "--no-normalize", "Hello"]) == 0
    (record,) = lines(capsys)
    assert sum(x * x for x in record["embedding"]) > 2


def test_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n\nOne more\n"))
    assert main(["embed", *ENGINE]) == 0
    plain = lines(capsys)
    assert len(plain) == 2
    records = '"Hello"\n{"text": "One more", "id": 7}\n{"text": ""}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(records))
    assert main(["embed", *ENGINE, "--jsonl"]) == 1  # the last has no token
    first, second, empty = lines(capsys)
    assert [first["embedding"], second["embedding"]] == [r["embedding"] for r in plain]
    assert second["id"] == 7
    assert (empty["embedding"], "empty" in empty["error"]) == ([], True)


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        ([], "", "no text"),
        (["--jsonl"], "{}\n", "line 1"),
        (["--jsonl"], "[\n", "line 1 is not JSON"),
        (["--jsonl", "Hello"], "", "--jsonl"),
        (["--dimensions", "100000", "Hello"], "", "dimensions"),
        (["--prompt-name", "x", "Hello"], "", "prompt_name"),
    ],
)
def test_wrong_use(
    arguments: list[str],
    text: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["embed", *ENGINE, *arguments]) in (1, 2)
    assert message in capsys.readouterr().err
