"""headrace batch with the shipped model: what it says, and that kill -9 loses and doubles nothing.

HEADRACE_BATCH_KILLS says how often the job is killed; 20 is what a release needs."""

from __future__ import annotations

import csv
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main

KILLS = int(os.environ.get("HEADRACE_BATCH_KILLS", "4"))
SEED = random.randrange(1 << 32)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def results(path: Path) -> dict[str, Any]:
    """What the file says of each row, without what differs from run to run."""
    found = {}
    for line in path.read_text().splitlines():
        value = json.loads(line)
        assert value["id"] not in found, "a row has two results"
        if value["response"] is not None:
            for name in ("id", "created"):
                value["response"]["body"].pop(name, None)
            del value["response"]["request_id"]
            usage = value["response"]["body"].get("usage", {})
            usage.pop("prompt_tokens_details", None)
        found[value["id"]] = value
    return found


def prompts(count: int) -> list[Any]:
    return [
        {
            "custom_id": f"c{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "tiny",
                "messages": [{"role": "user", "content": f"What is {i} + {i % 7}?"}],
                "max_tokens": 8 + i % 40,
                "ignore_eos": True,
                "temperature": 0.9,
                "seed": i,
            },
        }
        for i in range(count)
    ]


def test_a_job_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"custom_id": "chat", "messages": [{"role": "user", "content": "What is 2 + 2?"}]},
        {"prompt": "User: Count from 1 to 4.\nAssistant: "},
        {"custom_id": "bad", "prompt": "x", "guided_regex": "("},
        {"custom_id": "other", "prompt": "x", "model": "other"},
        {"custom_id": "two", "prompt": ["a", "b"], "n": 2, "max_tokens": 2},
        {"custom_id": "tool", "messages": [{"role": "user", "content": "x"}], "tool_choice":
         "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
    ]  # fmt: skip
    paths = [str(write(tmp_path / "in.jsonl", rows)), str(tmp_path / "out.jsonl")]
    options = ["--temperature", "0", "--max-tokens", "20", "--served-model-name", "tiny"]
    assert main(["batch", *paths, *options]) == 1
    said = capsys.readouterr()
    assert "headrace: 3 rows answered, 3 failed, 0 done before;" in said.err
    assert "out.jsonl.errors.jsonl" in said.err
    assert said.out == ""
    answers = {line["custom_id"]: line for line in results(tmp_path / "out.jsonl").values()}
    body = answers["chat"]["response"]["body"]
    assert body["choices"][0]["message"]["content"] == "2 + 2 = 4."
    assert body["model"] == "tiny"
    body = answers["request-2"]["response"]["body"]
    assert body["choices"][0]["text"].startswith("1, 2, 3, 4")
    assert len(answers["two"]["response"]["body"]["choices"]) == 4
    failures = results(tmp_path / "out.jsonl.errors.jsonl").values()
    codes = {f["custom_id"]: f["response"]["status_code"] for f in failures}
    assert codes == {"bad": 400, "other": 404, "tool": 400}
    assert main(["batch", *paths, *options]) == 1
    assert "0 rows answered, 0 failed, 6 done before" in capsys.readouterr().err
    # The process may go on: other calls still tell of their failures.
    assert logging.getLogger("headrace.failures").level == logging.NOTSET


def test_a_table_from_the_shell(tmp_path: Path) -> None:
    with (tmp_path / "in.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "question"])
        rows.writerows([f"k{i}", f"User: What is {i} + 1?\nAssistant: "] for i in range(5))
    arguments = [str(tmp_path / "in.csv"), str(tmp_path / "out.jsonl")]
    columns = ["--id-column", "key", "--prompt-column", "question", "--temperature", "0"]
    assert main(["batch", *arguments, *columns]) == 0
    found = results(tmp_path / "out.jsonl").values()
    assert sorted(line["custom_id"] for line in found) == ["k0", "k1", "k2", "k3", "k4"]
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl", "out"], "No such file"),
        (["in", "in"], "must be different files"),
        (["in", "link"], "must be different files"),
        (["in", "out", "--errors", "out"], "must be different files"),
        (["in", "out", "--window", "0"], "--window must be from 1"),
        (["in", "out", "--temperature", "-1"], "temperature must be"),
        (["in.csv", "out"], "no column prompt or messages"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", prompts(1))
    (tmp_path / "in.csv").write_text("a,b\n")
    os.link(tmp_path / "in", tmp_path / "link")
    assert main(["batch", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_no_file_is_overwritten_but_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious\n")
    arguments = ["batch", str(write(tmp_path / "in.jsonl", prompts(2))), str(output)]
    names = ["--served-model-name", "tiny"]
    assert main([*arguments, *names]) == 1
    assert "overwritten by force" in capsys.readouterr().err
    assert output.read_text() == "precious\n"
    assert main([*arguments, *names, "--force"]) == 0
    assert len(results(output)) == 2


def test_killed_at_random_moments_it_gives_what_it_gives_undisturbed(tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    rows = prompts(150)
    rows[10:10] = [{"custom_id": "c1", "prompt": "a second c1"}, {"wrong": 1}]
    source = write(tmp_path / "in.jsonl", rows)

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headrace", "batch", str(source), str(tmp_path / name)]
        options = ["--served-model-name", "tiny", "--window", "24", "--threads", "1"]
        return subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)

    calm, killed = tmp_path / "calm", tmp_path / "killed"
    assert start("calm").wait() == 1
    size = calm.stat().st_size
    kills = 0
    for _ in range(KILLS):
        # A moment of the work, not of the clock: once so many more bytes have been written.
        more = chosen.randrange(2 * size // (KILLS + 1) or 1)
        before = killed.stat().st_size if killed.exists() else 0
        job = start("killed")
        while job.poll() is None:
            if killed.exists() and killed.stat().st_size - before >= more:
                job.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        kills += job.wait() == -signal.SIGKILL
        with killed.open("ab") as file:  # as if it had been killed while it wrote
            file.write(b'{"id": "batch_req_1'[: chosen.randrange(20)])
    assert start("killed").wait() == 1
    assert results(killed) == results(calm), f"seed {SEED}, {kills} kills"
    errors = [tmp_path / f"{name}.errors.jsonl" for name in ("killed", "calm")]
    assert results(errors[0]) == results(errors[1])
    assert len(results(calm)) == 150
    assert kills > 0


def test_ctrl_c_ends_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    source, output = write(tmp_path / "in.jsonl", prompts(300)), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "headrace", "batch", str(source), str(output)]
    command += ["--served-model-name", "tiny"]
    job = subprocess.Popen(command, stderr=subprocess.PIPE)
    while job.poll() is None and not (output.exists() and output.stat().st_size):
        time.sleep(0.001)
    job.send_signal(signal.SIGINT)
    _, said = job.communicate()
    assert job.returncode == 130, said
    assert b"Traceback" not in said
    assert 0 < len(results(output)) < 300
    assert main(command[3:]) == 0
    assert len(results(output)) == 300
