"""What a person types at a prompt: lines to edit, messages of several lines, a history."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.cli.chat_session import COMMANDS
from headrace.cli.options import SAMPLING_FIELDS
from headrace.cli.terminal.history import History

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_PROMPT = "> "
_MORE = ". "
_QUOTES = '"""'
_FIELDS = tuple(SAMPLING_FIELDS)


def completions(text: str) -> list[str]:
    """What Tab makes of the beginning of a line: commands, names after /set, paths."""
    command, space, rest = text.partition(" ")
    if not space:
        return [name for name in COMMANDS if name.startswith(text)] if text[:1] == "/" else []
    if command == "/set":
        return [f"/set {name} " for name in _FIELDS if name.startswith(rest)]
    if command in ("/image", "/video", "/save"):
        found = sorted(glob.glob(glob.escape(os.path.expanduser(rest)) + "*"))
        return [f"{command} {path}{'/' if os.path.isdir(path) else ''}" for path in found]
    return []


class Reader(Protocol):
    """`read` raises EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C."""

    def read(self) -> str:
        """One message, which may have several lines."""


class PlainReader:
    """One message a line: for pipes."""

    def read(self) -> str:
        return input()


def terminal_reader() -> Reader:
    """With prompt_toolkit if it is installed (pip install headrace[chat]), else with readline."""
    history = History()
    try:
        return ToolkitReader(history)
    except ImportError:
        return ReadlineReader(history)


def join_lines(read: Any) -> str:
    """`read(prompt)` until a line doesn't end with a backslash, or until the quotes that begin the
    first one end; the lines without these."""
    lines = [read(_PROMPT)]
    if lines[0].lstrip().startswith(_QUOTES):
        lines = [lines[0].lstrip().removeprefix(_QUOTES)]
        while not lines[-1].rstrip().endswith(_QUOTES):
            lines.append(read(_MORE))
        lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
        return "\n".join(lines).strip("\n")
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read(_MORE))
    return "\n".join(lines)


class ReadlineReader:
    """input() with readline, where Python has it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._readline: Any = None
        with contextlib.suppress(ImportError):
            import readline

            self._readline = readline
            readline.set_auto_history(False)
            # Python turns it off: without it, every line of what is pasted would be sent.
            readline.parse_and_bind("set enable-bracketed-paste on")
            readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')  # Alt-Enter: a line break
            readline.set_completer_delims("")  # the whole line is completed
            readline.set_completer(_readline_completion)
            readline.parse_and_bind("tab: complete")
            readline.clear_history()
            for entry in history.entries():
                readline.add_history(entry)

    def read(self) -> str:
        text = join_lines(input)
        if text.strip():
            self._history.append(text)
            if self._readline is not None:
                self._readline.add_history(text)
        return text


def _readline_completion(text: str, state: int) -> str | None:
    found = completions(text)
    return found[state] if state < len(found) else None


class ToolkitReader:
    """prompt_toolkit: a box of several lines. Raises ImportError without it."""

    def __init__(self, history: History) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.history import History as ToolkitHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        class Kept(ToolkitHistory):
            def load_history_strings(self) -> Iterable[str]:
                return reversed(history.entries())

            def store_string(self, string: str) -> None:
                history.append(string)

        class Commands(Completer):
            def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
                text = document.text_before_cursor
                return [Completion(found, -len(text)) for found in completions(text)]

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def add_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._session: PromptSession[str] = PromptSession(
            history=Kept(),
            completer=Commands(),
            complete_while_typing=False,
            key_bindings=keys,
            prompt_continuation=lambda width, line, wrapped: _MORE,
        )

    def read(self) -> str:
        return join_lines(self._session.prompt)
