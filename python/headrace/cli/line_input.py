"""What a person types at a prompt: lines to edit, messages of several lines, a history."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.cli.history import History

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_PROMPT = "> "
_MORE = ". "


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
    """`read(prompt)` until a line doesn't end with a backslash; the lines without it."""
    lines = [read(_PROMPT)]
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


class ToolkitReader:
    """prompt_toolkit: a box of several lines. Raises ImportError without it."""

    def __init__(self, history: History) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import History as ToolkitHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        class Kept(ToolkitHistory):
            def load_history_strings(self) -> Iterable[str]:
                return reversed(history.entries())

            def store_string(self, string: str) -> None:
                history.append(string)

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def add_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._session: PromptSession[str] = PromptSession(
            history=Kept(),
            key_bindings=keys,
            prompt_continuation=lambda width, line, wrapped: _MORE,
        )

    def read(self) -> str:
        return join_lines(self._session.prompt)
