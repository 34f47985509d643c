"""Whole processes on the built engine: interruption, exit, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from terminal import READY, Terminal

import headrace

CHECKPOINT = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parents[1])}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def headrace_command(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ctrl_c_leaves_the_llm_usable() -> None:
    done = python(
        "import signal, threading\n"
        "from headrace import LLM, SamplingParams, shipped_model\n"
        "llm = LLM(shipped_model(), max_model_len=4000)\n"
        "endless = SamplingParams(max_tokens=3900, ignore_eos=True)\n"
        "threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()\n"
        "try:\n"
        "    llm.generate(['x'] * 64, endless, use_tqdm=False)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', llm.request_ids())\n"
        "print(len(llm.generate('x', SamplingParams(max_tokens=3), use_tqdm=False)))\n"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted []\n1\n", "", 0)


@pytest.mark.parametrize("last", ["", "raise SystemExit(3)", "del stream", "llm.close()"])
def test_quiet_exit_in_the_middle(last: str) -> None:
    done = python(
        "from headrace import LLM, SamplingParams, shipped_model\n"
        "llm = LLM(shipped_model(), max_model_len=4000)\n"
        "endless = SamplingParams(max_tokens=3900, ignore_eos=True)\n"
        "stream = llm.generate(['x'] * 8, endless, use_tqdm=False, stream=True)\n"
        "next(stream)\n" + last
    )
    assert (done.stderr, done.returncode) == ("", 3 if "3" in last else 0)


def test_generate() -> None:
    done = headrace_command("generate", "--chat", "--temperature", "0", "What is 2 + 3?")
    assert (done.returncode, done.stderr) == (0, "")
    assert "5" in done.stdout


def test_info() -> None:
    done = headrace_command("info", "--json")
    facts = json.loads(done.stdout)
    assert facts["family"] == "ernie4_5"
    assert facts["num_parameters"] * 2 <= facts["checkpoint_bytes"]
    loaded = json.loads(headrace_command("info", "--json", "--load").stdout)
    assert loaded["num_parameters"] == facts["num_parameters"]
    assert loaded["weight_bytes"] >= loaded["num_parameters"] * 2


def test_bench() -> None:
    words = ("bench", "--num-prompts", "4", "--input-len", "20", "--output-len", "10", "--json")
    report = json.loads(headrace_command(*words).stdout)
    assert report["throughput"]["output_tokens_per_second"] > 0


def test_version() -> None:
    assert headrace_command("--version").stdout == f"headrace {headrace.version()}\n"


def test_the_log_level_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HEADRACE_LOG_LEVEL", "debug")
    done = headrace_command("info", "--load")
    assert "headrace: debug: device auto is" in done.stderr
    monkeypatch.setitem(ENVIRONMENT, "HEADRACE_LOG_LEVEL", "off")
    assert headrace_command("info", "--load").stderr == ""


def test_chat_on_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "chat", "--temperature", "0"]
    terminal = Terminal(command, {**ENVIRONMENT, "XDG_STATE_HOME": str(tmp_path)})
    try:
        terminal.wait_for("/help lists the commands.")
        terminal.wait_for(READY)
        terminal.type("What is 2 + 3?\r")
        terminal.wait_for("5")
        terminal.wait_for("tokens/s")
        terminal.wait_for(READY)
        terminal.interrupt("(/exit or Ctrl-D leaves)")
        terminal.wait_for(READY)
        terminal.type("/exit\r")
        assert terminal.status() == 0
    finally:
        terminal.close()
