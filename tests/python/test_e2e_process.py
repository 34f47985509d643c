"""Whole processes on the built engine: interruption, exit, the command line."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HAS_ENGINE, ROOT

import headrace

CHECKPOINT = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
pytestmark = pytest.mark.skipif(
    not (HAS_ENGINE and CHECKPOINT.is_file()), reason="needs the built engine and its model"
)
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


class Terminal:
    """`headrace chat` on a terminal of its own."""

    def __init__(self) -> None:
        self.process_id, self.file = pty.fork()
        if self.process_id == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, [sys.executable, "-m", "headrace", "chat"], ENVIRONMENT)
        self.seen = ""

    def came(self, text: str, seconds: float) -> bool:
        """Whether `text` came since the last text that did, within some time."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.file], [], [], left)[0]:
                return False
            self.seen += os.read(self.file, 4096).decode("utf-8", "replace")
        self.seen = self.seen.split(text, 1)[1]
        return True

    def wait_for(self, text: str) -> None:
        assert self.came(text, 60), f"no {text!r} in {self.seen!r}"

    def type(self, line: str) -> None:
        os.write(self.file, (line + "\n").encode())


def test_chat_on_a_terminal() -> None:
    terminal = Terminal()
    try:
        terminal.wait_for("/help lists the commands.")
        terminal.wait_for("> ")
        terminal.type("/set temperature 0")
        terminal.wait_for("> ")
        terminal.type("What is 2 + 3?")
        terminal.wait_for("5")
        terminal.wait_for("> ")
        for _ in range(20):  # at the prompt: a hint; readline may miss a signal as it starts
            os.kill(terminal.process_id, signal.SIGINT)
            if terminal.came("(/exit or Ctrl-D leaves)", 1):
                break
        else:
            pytest.fail(f"no hint in {terminal.seen!r}")
        terminal.type("/exit")
        _, status = os.waitpid(terminal.process_id, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(terminal.file)
