"""What a person meets first, over the fake engine or none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import CompletionOutput, RequestOutput, SamplingParams
from headrace.cli import _parser as command_line
from headrace.cli import main
from headrace.cli.terminal.line_input import completions, join_lines
from headrace.cli.terminal.wrapping import Wrapper
from headrace.hub import resolve_model
from headrace.options.generation_defaults import chat_values, for_chat


def test_chats_sample_sensibly_unless_somebody_chooses() -> None:
    chosen = chat_values({})
    assert chosen == {"temperature": 0.3, "min_p": 0.1}
    assert chat_values({"repetition_penalty": 1.1}) == chosen
    for name, value in (("temperature", 0.9), ("top_p", 0.9), ("do_sample", False)):
        assert chat_values({name: value}) == {}
    assert for_chat(SamplingParams(max_tokens=3), chosen).temperature == 0.3
    assert for_chat(SamplingParams(top_p=0.5), chosen).temperature is None


@pytest.mark.parametrize("command", ["generate", "embed"])
def test_a_folder_is_no_prompt(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path), "hello"]) == 2
    assert f"is a folder, not a text: name the model by -m {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat", "info", "bench"])
def test_the_model_by_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-m", "/no/model"]) == 1
    assert "There is no model folder /no/model" in capsys.readouterr().err
    assert main([command, "/no/one", "-m", "/no/model"]) == 2
    assert "the model is given twice" in capsys.readouterr().err


def test_bye_and_the_values(
    fake_engine: Any,
    toy_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("/set top_k 5\n/set\n/bye\nhello\n"))
    assert main(["chat", str(toy_folder), "--top-p", "0.5"]) == 0
    words = capsys.readouterr().out.split()
    assert words[words.index("top_p") + 1] == "0.5"
    assert words[words.index("top_k") + 1] == "5"
    assert "hello" not in words


def test_quotes_hold_several_lines() -> None:
    lines = iter(['"""one', "two", 'three"""', "four\\", "five"])
    assert join_lines(lambda _: next(lines)) == "one\ntwo\nthree"
    assert join_lines(lambda _: next(lines)) == "four\nfive"


def test_tab(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    assert completions("/s") == ["/save", "/set", "/system"]
    assert completions("/set top") == ["/set top_p ", "/set top_k "]
    assert completions(f"/image {tmp_path}/a") == [f"/image {tmp_path}/a.png"]
    assert completions("hello") == []


def test_words_wrap_whole() -> None:
    written: list[str] = []
    wrapper = Wrapper(written.append, width=20)
    for piece in ("one two thr", "ee four fi", "ve six\n", "\u4f60" * 11):
        wrapper.feed(piece)
    wrapper.flush()
    text = "one two three four\nfive six\n" + "\u4f60" * 10 + "\n\u4f60"
    assert "".join(written) == text


def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "model.safetensors").write_text(text)
    with pytest.raises(ValueError, match=r"is a pointer of git-lfs.*git lfs pull"):
        resolve_model(tmp_path)


def test_outputs_show_what_they_have() -> None:
    output = RequestOutput("1", outputs=CompletionOutput(text="hi"))
    assert len(dir(output)) < 20
    assert {"outputs", "prompt"} <= set(dir(output))
    assert "text" in dir(output.outputs)
    assert "sampling_mask" not in dir(output.outputs)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "generate" in script
    assert "max-model-len" in script


def test_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    snapshot = tmp_path / "models--someone--model" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.utils._cache_manager.HF_HUB_CACHE", str(tmp_path))
    assert main(["list"]) == 0
    assert "someone/model" in capsys.readouterr().out
    assert main(["rm", "-y", "some/other"]) == 2
    assert main(["rm", "-y", "someone/model"]) == 0
    assert not snapshot.exists()
    assert main(["pull", "nothing"]) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pack M --dtype float32 OUT", {"model": "M", "out": "OUT", "dtype": "float32"}),
        ("pack -m M --force OUT", {"named_model": "M", "model": None, "out": "OUT"}),
        ("batch IN --force OUT --window 5 M", {"input": "IN", "output": "OUT", "model": "M"}),
        ("serve M --port 1 N", {"models": ["M", "N"], "port": 1}),
        ("embed -m M a --no-normalize b", {"model": "M", "texts": ["a", "b"]}),
        ("embed -m M -- --port", {"texts": ["--port"]}),
    ],
)
def test_options_may_stand_between_words(words: str, expected: dict[str, Any]) -> None:
    found = vars(command_line().parse_args(words.split()))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "words", [["info"], ["bench", "--iterations", "1"], ["embed", "a"], ["batch", "in", "out"]]
)
def test_the_shipped_model_is_called_a_toy(
    words: list[str],
    fake_engine: Any,
    toy_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text('{"prompt": "a"}\n')
    monkeypatch.setattr(headrace, "shipped_model", lambda: str(toy_folder))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main([*words, *(["--num-prompts", "1", "--output-len", "1"] if words[0] == "bench" else [])])
    assert "It is a toy" in capsys.readouterr().err
    main([words[0], "-m", str(toy_folder), *words[1:]])
    assert "It is a toy" not in capsys.readouterr().err
