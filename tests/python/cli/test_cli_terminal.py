"""`headrace chat` on a terminal, over the fake engine: what a person types and pastes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import READY, Terminal

CHILD = """
import sys
sys.path[:] = {path!r}
import fake_core
fake_core.install()
if {without!r}:
    sys.modules[{without!r}] = None
from headrace.cli import main
sys.exit(main(["chat", {folder!r}]))
"""
PASTE = "\x1b[200~{}\x1b[201~"


@pytest.fixture(params=["readline", "prompt_toolkit"])
def chat(
    request: pytest.FixtureRequest, toy_folder: Path, tmp_path: Path
) -> Iterator[Callable[[], Terminal]]:
    """chat() begins a session; all share a history."""
    if request.param == "prompt_toolkit":
        pytest.importorskip("prompt_toolkit")
    code = CHILD.format(
        path=sys.path,
        without="prompt_toolkit" if request.param == "readline" else "",
        folder=str(toy_folder),
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    begun: list[Terminal] = []

    def begin() -> Terminal:
        begun.append(Terminal([sys.executable, "-c", code], environment))
        begun[-1].wait_for("/help lists the commands.")
        begun[-1].wait_for(READY)
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.close()


def test_what_is_pasted_is_one_message(chat: Callable[[], Terminal]) -> None:
    terminal = chat()
    terminal.type(PASTE.format("one\rtwo\rthree") + "\r")
    terminal.wait_for("User: one\r\ntwo\r\nthree\r\nAssistant: ")  # the fake model's echo
    terminal.wait_for("tokens/s")
    terminal.type("/exit\r")
    assert terminal.status() == 0


@pytest.mark.parametrize("line_break", ["\x1b\r", "\\\r"])
def test_a_typed_message_of_two_lines(chat: Callable[[], Terminal], line_break: str) -> None:
    terminal = chat()
    terminal.type(f"one{line_break}")
    time.sleep(0.2)  # keys, not a paste
    terminal.type("two\r")
    terminal.wait_for("User: one\r\ntwo\r\nAssistant: ")


def test_history_between_sessions(chat: Callable[[], Terminal], tmp_path: Path) -> None:
    first = chat()
    first.type("what was this\r")
    first.wait_for("User: what was this\r\n")
    first.wait_for(READY)
    first.type("\x04")
    assert first.status() == 0
    file = tmp_path / "headrace" / "chat_history"
    assert file.read_text() == '"what was this"\n'
    assert file.stat().st_mode & 0o777 == 0o600
    second = chat()
    second.type("\x1b[A")
    second.wait_for("what was this")
    second.type("\r")
    second.wait_for("User: what was this\r\n")


def test_ctrl_c_leaves_the_line_and_goes_on(chat: Callable[[], Terminal]) -> None:
    terminal = chat()
    terminal.type("half a mess!")
    # Ctrl-C drops keys that nobody has read yet; readline would wait for those.
    terminal.wait_for("!")
    terminal.interrupt("(/exit or Ctrl-D leaves)")
    terminal.wait_for(READY)
    terminal.type("whole\r")
    terminal.wait_for("User: whole\r\n")
