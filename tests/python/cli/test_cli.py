"""The `headrace` command over the fake engine."""

from __future__ import annotations

import io
import itertools
import json
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import packed
from headrace.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    fake_engine: Any,
    toy_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """run(command, *arguments, stdin=text, model=True): status, stdout, stderr."""

    def call(*words: str, stdin: str = "", model: bool = True) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        if model:
            flag = ["--model"] if words[0] == "generate" else []
            words = (words[0], *flag, str(toy_folder), *words[1:])
        capsys.readouterr()
        try:
            status = main(words)
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def installed(fake_engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of the models that the commands install."""
    seen: list[Any] = []
    install = fake_engine.Engine.install_model

    def note(engine: Any, name: str, options: Any, **rest: Any) -> None:
        seen.append(options)
        install(engine, name, options, **rest)

    monkeypatch.setattr(fake_engine.Engine, "install_model", note)
    return seen


def test_version(run: Run) -> None:
    assert run("--version", model=False) == (0, f"headrace {headrace.version()}\n", "")


def test_no_command_shows_the_help(run: Run) -> None:
    status, out, err = run(model=False)
    assert (status, out) == (2, "")
    for command in ("chat", "generate", "bench", "info"):
        assert command in err


@pytest.mark.parametrize("words", [("sing",), ("generate", "--temperature", "hot")])
def test_wrong_usage(run: Run, words: tuple[str, ...]) -> None:
    status, _, err = run(*words, model=False)
    assert status == 2
    assert err.splitlines()[-1].startswith("headrace")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ("generate", "--temperature", "-1", "x"),
            2,
            "temperature must be non-negative, got -1.0.",
        ),
        (("generate", "--block-size", "7", "x"), 2, "block_size must be one of"),
        (("generate", "--system", "s", "x"), 2, "--system needs --chat"),
        (("generate", "-m", "/no/model", "x"), 1, "There is no model folder /no/model"),
        (("chat", "/no/model"), 1, "There is no model folder /no/model"),
        (("info", "/no/model"), 1, "There is no model folder /no/model"),
        (("bench", "/no/model"), 1, "There is no model folder /no/model"),
        (("bench", "--num-prompts", "0"), 2, "--num-prompts must be at least 1"),
    ],
)
def test_errors_are_one_line(run: Run, words: tuple[str, ...], status: int, message: str) -> None:
    got, out, err = run(*words, model=False)
    assert (got, out) == (status, "")
    assert err.startswith(f"headrace: error: {message}")
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(run: Run) -> None:
    with pytest.raises(FileNotFoundError):
        run("generate", "--debug", "-m", "/no/model", "x", model=False)


@pytest.mark.parametrize(
    ("level", "shown"), [("debug", "headrace: info: installed toy"), ("", ""), ("off", "")]
)
def test_the_log_level_is_heard(
    run: Run, monkeypatch: pytest.MonkeyPatch, level: str, shown: str
) -> None:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", level)
    status, out, err = run("generate", "one")
    assert (status, out) == (0, "one\n")
    assert err.rstrip("0123456789\n") == shown
    assert logging.getLogger("headrace").handlers == []


@pytest.mark.parametrize("command", ["generate", "chat", "info", "bench"])
@pytest.mark.parametrize("name", ["tiny.gguf", "folder", "someone/Tiny-GGUF"])
def test_gguf_is_named(run: Run, tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for file in ("tiny.gguf", "folder/tiny.Q4_K_M.gguf"):
        (tmp_path / file).write_bytes(b"GGUF")
    path = name if "/" in name else str(tmp_path / name)
    flags = ["-m", path, "x"] if command == "generate" else [path]
    status, out, err = run(command, *flags, model=False, stdin="hi\n")
    assert (status, out) == (1, "")
    assert f"{path}: GGUF files aren't read yet. Pass the model it was made from" in err


class TestGenerate:
    def test_one_prompt(self, run: Run) -> None:
        assert run("generate", "hello 你好") == (0, "hello 你好\n", "")

    def test_several_prompts(self, run: Run) -> None:
        assert run("generate", "one", "two three") == (0, "one\ntwo three\n", "")

    def test_standard_input(self, run: Run) -> None:
        assert run("generate", stdin="one\ntwo") == (0, "one\ntwo\n", "")
        assert run("generate", "--lines", stdin="one\n\ntwo\n") == (0, "one\ntwo\n", "")
        status, _, err = run("generate", stdin="")
        assert status == 2
        assert "there is no prompt" in err

    def test_the_line_break_that_ends_a_pipe_is_no_part_of_the_prompt(self, run: Run) -> None:
        for piped, prompt in (("one\n", "one"), ("one\r\n", "one"), ("one\n\n", "one\n")):
            _, out, _ = run("generate", "--json", stdin=piped)
            assert json.loads(out)["prompt"] == prompt
        assert run("generate", stdin="\n")[0] == 2

    def test_several_outputs(self, run: Run, fake_engine: Any) -> None:
        fake_engine.script = lambda prompt, output, seed: 40 + seed % 4 if not output else 2
        _, out, _ = run("generate", "-n", "2", "--seed", "4", "x")
        first, second = out.splitlines()
        assert first != second
        _, out, _ = run("generate", "--n", "2", "--seed", "4", "--json", "x", "y")
        records = [json.loads(line) for line in out.splitlines()]
        places = [(record["prompt"], record["index"]) for record in records]
        assert places == [("x", 0), ("x", 1), ("y", 0), ("y", 1)]
        assert [record["text"] for record in records] == [first, second] * 2

    def test_logprobs(self, run: Run) -> None:
        status, out, err = run("generate", "--json", "--logprobs", "2", "one two")
        assert (status, err) == (0, "")
        record = json.loads(out)
        assert [position[0]["id"] for position in record["logprobs"]] == record["token_ids"]
        assert set(record["logprobs"][0][0]) == {"id", "text", "logprob", "rank"}
        status, _, err = run("generate", "--logprobs", "2", "x")
        assert (status, err) == (2, "headrace: error: --logprobs needs --json\n")

    def test_an_adapter(self, run: Run, installed: list[Any], tmp_path: Path) -> None:
        adapter = tmp_path / "pirate"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text('{"r": 8, "rank_pattern": {"q_proj": 32}}')
        assert run("generate", "--lora", str(adapter), "one") == (0, "one\n", "")
        assert run("generate", "--lora", str(adapter), "--max-lora-rank", "64", "one")[0] == 0
        assert [(options.max_loras, options.max_lora_rank) for options in installed] == [
            (1, 32),
            (1, 64),
        ]
        status, _, err = run("generate", "--lora", str(tmp_path / "none"), "one")
        assert (status, "there is no folder" in err) == (2, True)

    @pytest.mark.parametrize("schema", ["{", "/no/file"])
    def test_a_bad_schema(self, run: Run, schema: str) -> None:
        status, _, err = run("generate", "--json-schema", schema, "x")
        assert status == 2
        assert "--json-schema is neither JSON nor a file of JSON" in err

    def test_guides_reach_the_request(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[Any] = []
        monkeypatch.setattr(
            "headrace.llm.requests.constraints.Constraints.of",
            lambda constraints, params: seen.append(params.guided_decoding),
        )
        schema = tmp_path / "schema.json"
        schema.write_text('{"type": "object"}')
        for words in (
            ("generate", "--json-schema", '{"type": "object"}'),
            ("generate", "--json-schema", str(schema)),
            ("generate", "--regex", "[a-z]+"),
        ):
            run(*words, "x")
        run("chat", "--regex", "yes|no", stdin="x\n")
        wanted = [{"type": "object"}, "[a-z]+", "yes|no"]
        assert [guided.json or guided.regex for guided, _ in itertools.groupby(seen)] == wanted

    def test_chat_template(self, run: Run) -> None:
        _, out, _ = run("generate", "--chat", "--system", "S", "hi")
        assert out == "S\nUser: hi\nAssistant: \n"

    def test_sampling_options(self, run: Run) -> None:
        words = (
            "generate",
            "--stop",
            "three",
            "--max-tokens",
            "50",
            "--top-p",
            "0.9",
            "--seed",
            "3",
        )
        assert run(*words, "one two three")[1] == "one two \n"
        assert run("generate", "--max-tokens", "1", "one two three")[1] == "one\n"

    def test_json(self, run: Run) -> None:
        status, out, err = run("generate", "--json", "你好", "")
        good, bad = map(json.loads, out.splitlines())
        assert (good["text"], good["finish_reason"], good["error_code"]) == ("你好", "stop", 200)
        assert (bad["error_code"], bad["finish_reason"]) == (400, "error")
        assert status == 1
        assert err.startswith("headrace: error: Invalid input")

    def test_a_bad_prompt(self, run: Run) -> None:
        status, _, err = run("generate", "--max-model-len", "16", "word " * 20)
        assert status == 1
        assert "exceeds the limit max_model_len(16)" in err

    def test_without_a_tokenizer(self, run: Run, tmp_path: Path, toy_folder: Path) -> None:
        (tmp_path / "config.json").write_text((toy_folder / "config.json").read_text())
        status, out, err = run("generate", "-m", str(tmp_path), "x", model=False)
        assert (status, out) == (1, "")
        assert "name one by tokenizer" in err

    def test_the_shipped_model(
        self, run: Run, toy_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(headrace, "shipped_model", lambda: str(toy_folder))
        assert run("generate", "hi", model=False)[1] == "hi\n"


class TestChat:
    def test_history(self, run: Run) -> None:
        status, out, err = run("chat", "--system", "S", stdin="one\ntwo\n")
        first = "S\nUser: one\nAssistant: "
        assert (status, err) == (0, "")
        assert out == f"{first}\n{first}{first}\n"  # the echo ends at the </s> of the history

    def test_reset_and_system(self, run: Run) -> None:
        lines = "one\n/reset\ntwo\n/system Be kind.\nthree\n/system\nfour\n"
        _, out, _ = run("chat", stdin=lines)
        assert out == (
            "User: one\nAssistant: \nUser: two\nAssistant: \n"
            "Be kind.\nUser: three\nAssistant: \nUser: four\nAssistant: \n"
        )

    def test_set(self, run: Run) -> None:
        lines = "/set max_tokens 2\none\n/set max_tokens default\n/reset\ntwo\n"
        _, out, _ = run("chat", stdin=lines)
        assert out == "User\nUser: two\nAssistant: \n"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("/set top_k", "usage: /set NAME VALUE"),
            ("/set colour red", "usage: /set NAME VALUE"),
            ("/set temperature -1", "temperature must be non-negative, got -1.0."),
            ("/set top_k many", "invalid literal"),
            ("/dance", "unknown command /dance"),
        ],
    )
    def test_wrong_commands(self, run: Run, line: str, message: str) -> None:
        status, _, err = run("chat", stdin=f"{line}\nhi\n")
        assert status == 1
        assert err.startswith(f"headrace: error: {message}")

    def test_help_and_exit(self, run: Run) -> None:
        status, out, _ = run("chat", stdin="/help\n/exit\nnot sent\n")
        assert status == 0
        assert "/reset" in out
        assert "not sent" not in out

    def test_a_path_is_no_command(self, run: Run) -> None:
        _, out, err = run("chat", stdin="/usr/bin is what?\n")
        assert (out, err) == ("User: /usr/bin is what?\nAssistant: \n", "")

    def test_save(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "talk.json"
        status, out, err = run("chat", "--system", "S", stdin=f"one\n/save {file}\n")
        assert (status, err) == (0, "")
        assert out.endswith(f"2 messages written to {file}\n")
        messages = json.loads(file.read_text())["messages"]
        assert [m["role"] for m in messages] == ["system", "user", "assistant"]
        status, _, err = run("chat", stdin=f"one\n/save {file}\n")
        assert (status, "is there already" in err) == (1, True)
        assert json.loads(file.read_text())["messages"] == messages
        assert "can't be written" in run("chat", stdin=f"/save {tmp_path}/no/x.json\n")[2]

    def test_a_full_context_names_the_way_out(self, run: Run) -> None:
        lines = "one two three\n" * 3 + "/reset\none two three\n"
        _, out, err = run("chat", "--max-model-len", "48", stdin=lines)
        assert "the context of 48 tokens is full; /reset forgets the conversation" in err
        assert out.endswith("User: one two three\nAssistant: \n")
        _, _, err = run("chat", "--max-model-len", "48", stdin="word " * 60 + "\n")
        assert "/reset" not in err  # it would not help

    def test_an_error_leaves_the_history_alone(self, run: Run) -> None:
        lines = "word " * 30 + "\nhi\n"
        status, out, err = run("chat", "--max-model-len", "40", stdin=lines)
        assert status == 1
        assert "exceeds the limit" in err or "Input text is too long" in err
        assert out.endswith("User: hi\nAssistant: \n")

    def test_ctrl_c_stops_a_reply(self, run: Run, fake_engine: Any) -> None:
        calls = []

        def script(prompt: list[int], output: list[int], seed: int) -> int:
            calls.append(tuple(prompt))
            return 40 if len(set(calls)) == 1 else 2  # the second reply ends at once

        fake_engine.script = script
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        status, out, err = run("chat", "--max-model-len", "100000", stdin="one\ntwo\n")
        timer.join()
        assert (status, err) == (0, "")
        assert " [stopped]\n" in out
        assert len(set(calls)) == 2


def write_packed_header(file: Path, **facts: str) -> None:
    header = json.dumps({"__metadata__": {"headrace_packed": "1", **facts}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)


class TestInfo:
    def test_text(self, run: Run, toy_folder: Path) -> None:
        status, out, _ = run("info")
        assert status == 0
        facts = dict(line.split("  ", 1) for line in out.splitlines())
        assert facts["path"].strip() == str(toy_folder)
        assert facts["family"].strip() == "toy"
        assert facts["isa"].strip() == facts["isas available"].strip() == "toy"
        assert facts["isas unavailable"].strip() == "toy_plus (no PLUS)"
        assert facts["numa nodes"].strip() == "0-1"
        assert facts["gpus"].strip() == (
            "cuda:0: Toy GPU, compute capability 9.0, 1 GiB; "
            "cuda:1: Old GPU, compute capability 7.5, 512 MiB (unusable: it is too old)"
        )

    def test_a_machine_without_gpus(
        self, run: Run, fake_engine: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none() -> list[Any]:
            raise fake_engine.HeadraceError("no NVIDIA driver is installed")

        monkeypatch.setattr(fake_engine, "describe_gpus", none)
        facts = json.loads(run("info", "--json")[1])
        assert (facts["gpus"], facts["no_gpus"]) == ([], "no NVIDIA driver is installed")
        text = dict(line.split("  ", 1) for line in run("info")[1].splitlines())
        assert text["gpus"].strip() == "none"

    def test_a_packed_folder(self, run: Run, tmp_path: Path, toy_folder: Path) -> None:
        (tmp_path / "config.json").write_text((toy_folder / "config.json").read_text())
        file = tmp_path / packed.FILE_NAME
        write_packed_header(file, layout="cpu-panels-1", dtype="bfloat16", quantization="wint8")
        _, out, _ = run("info", str(tmp_path), "--json", model=False)
        facts = json.loads(out)
        assert facts["packed_file"] == file.name
        assert facts["packed_bytes"] == file.stat().st_size
        assert (facts["packed_quantization"], facts["packed_layout"]) == ("wint8", "cpu-panels-1")
        assert facts["dtype"] == "bfloat16"
        assert facts["kv_bytes_per_token"] == 2 * 1 * 1 * 8 * 2
        assert "checkpoint_files" not in facts
        file.write_bytes(b"no packed file")
        status, _, err = run("info", str(tmp_path), model=False)
        assert (status, "is no packed file of Headrace" in err) == (1, True)

    @pytest.mark.parametrize("flags", [(), ("--load",)])
    def test_json(self, run: Run, flags: tuple[str, ...]) -> None:
        _, out, _ = run("info", "--json", *flags)
        facts = json.loads(out)
        assert facts["max_model_len"] == 512
        if flags:
            assert facts["cacheable_tokens"] == facts["num_kv_blocks"] * facts["block_size"]
        else:
            assert facts["kv_bytes_per_token"] == 2 * 1 * 1 * 8 * 4
            assert facts["checkpoint_files"] == 0


# Flag, value given, the engine's option, what it is then.
ENGINE_OPTIONS = [
    ("--device", "cpu_numa", "device", "cpu_numa"),
    ("--dtype", "float16", "dtype", "float16"),
    ("--quantization", "wint8", "quantization", "wint8"),
    ("--kv-cache-dtype", "int8", "kv_cache_dtype", "int8"),
    ("--max-model-len", "128", "max_model_len", 128),
    ("--max-num-seqs", "3", "max_num_seqs", 3),
    ("--max-num-batched-tokens", "70", "max_num_batched_tokens", 70),
    ("--block-size", "16", "block_size", 16),
    ("--num-kv-blocks", "9", "num_kv_blocks", 9),
    ("--num-gpu-blocks-override", "9", "num_kv_blocks", 9),
    ("--kv-cache-bytes", "4096", "kv_cache_bytes", 4096),
    ("--gpu-memory-utilization", "0.5", "memory_utilization", 0.5),
    ("--threads", "2", "num_threads", 2),
    ("--tensor-parallel-size", "2", "tensor_parallel_size", 2),
    ("--enable-expert-parallel", None, "enable_expert_parallel", True),
    ("--data-parallel-size", "2", "data_parallel_size", 2),
    ("--packed-weights", "auto", "packed_weights", "auto"),
    ("--packed-copy", None, "packed_copy", True),
    ("--swap-space", "1.5", "swap_space", 1.5),
    ("--no-prefix-caching", None, "enable_prefix_caching", False),
]


@pytest.mark.parametrize(("flag", "value", "option", "wanted"), ENGINE_OPTIONS)
def test_engine_options_reach_the_engine(
    run: Run, installed: list[Any], flag: str, value: str | None, option: str, wanted: Any
) -> None:
    status, _, err = run("info", "--load", flag, *([] if value is None else [value]))
    assert (status, err) == (0, "")
    assert [getattr(options, option) for options in installed] == [wanted]


class TestBench:
    WORDS = ("bench", "--num-prompts", "4", "--input-len", "8", "--output-len", "5")

    def test_json(self, run: Run) -> None:
        status, out, err = run(*self.WORDS, "--iterations", "2", "--json")
        assert (status, err) == (0, "")
        report = json.loads(out)
        assert report["throughput"]["num_prompts"] == 4
        assert report["throughput"]["output_tokens_per_second"] > 0
        assert report["latency"]["iterations"] == 2
        spread = report["latency"]["time_per_output_token"]
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]

    def test_text(self, run: Run) -> None:
        _, out, _ = run(*self.WORDS)
        assert out.splitlines()[1].startswith("throughput  4 prompts of 8 tokens, 5 tokens each:")
        assert "time to first token" in out

    def test_too_long_for_the_model(self, run: Run) -> None:
        status, _, err = run("bench", "--input-len", "1000")
        assert status == 2
        assert "exceeds the limit max_model_len" in err
