"""What was typed in earlier chats."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_MOST_ENTRIES = 1000


class History:
    """A file with one JSON string a line, so that entries may have several lines.

    Only its owner can read it. One that can't be read or written is left alone: chats go on
    without it.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _default_file()

    def entries(self) -> list[str]:
        """The last thousand, the oldest first."""
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        found: list[str] = []
        for line in lines:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, str):
                    found.append(entry)
        if len(found) > 2 * _MOST_ENTRIES:
            found = found[-_MOST_ENTRIES:]
            self._write(found, os.O_TRUNC)
        return found[-_MOST_ENTRIES:]

    def append(self, entry: str) -> None:
        self._write([entry], os.O_APPEND)

    def _write(self, entries: list[str], how: int) -> None:
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            number = os.open(self._file, os.O_WRONLY | os.O_CREAT | how, 0o600)
            with open(number, "w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(entry) + "\n" for entry in entries)


def _default_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base, "headrace", "chat_history").expanduser()
