"""The files of results: appended to, and taken up again after any kind of end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SYNC_SECONDS = 1.0
_MOST_BYTES = 1 << 28  # of a line that is read back


class ResultFile:
    """JSON lines. A job that is killed leaves them whole, but for the last.

    A line that `append` has written survives the process; at most _SYNC_SECONDS later, and from
    `close` on, it also survives the machine. Only one job at a time can have a file open.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it; what it holds stays as it is.

        Raises OSError, also for pipes and devices, and BlockingIOError if another job writes to it.
        """
        self.path = path
        new = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        self._file = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise OSError(
                    f"{path} is a pipe or a device: results are read back to go on after a break; "
                    "name a file"
                )
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(f"another job is writing to {path}") from None
            if new:
                _sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise
        self._synced = time.monotonic()
        self._dirty = False

    def append(self, value: dict[str, Any]) -> None:
        """One line. A failure (the disk is full) leaves no part of it. Raises OSError."""
        line = json.dumps(value, ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "backslashreplace"
        )
        self._write(line + b"\n")
        self._dirty = True
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Returns when what has been written is on the disk."""
        if self._dirty:
            os.fsync(self._file)
            self._dirty = False
        self._synced = time.monotonic()

    def clear(self) -> None:
        os.ftruncate(self._file, 0)
        self._dirty = True

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._file).st_size == 0

    def close(self) -> None:
        """A file that nothing was written to is removed."""
        try:
            self.sync()
            if self.is_empty:
                self.path.unlink(missing_ok=True)
        finally:
            os.close(self._file)

    def recover(self, begins: bytes, read: Callable[[bytes], bool]) -> None:
        """Reads back what the file holds, and cuts off a last line that was being written.

        begins: how each line begins. read: gets each whole line; False if it can't be one.

        Raises ValueError, and changes nothing, if there is anything else in the file.
        """
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_BYTES), b""), 1):
                torn = not line.endswith(b"\n")
                if len(line) == _MOST_BYTES and torn:
                    raise ValueError(
                        f"{self.path}: line {number} has {_MOST_BYTES} bytes or more; choose "
                        "another file, or have it overwritten by force"
                    )
                begun = line.rstrip(b"\0")  # file systems leave them after a loss of power
                if not begun.startswith(begins[: len(begun)]) or not (torn or read(line)):
                    raise ValueError(
                        f"{self.path}: line {number} is no result of this batch job; choose "
                        "another file, or have it overwritten by force"
                    )
                if torn:
                    os.ftruncate(self._file, whole)
                    return
                whole += len(line)

    def _write(self, line: bytes) -> None:
        start = os.fstat(self._file).st_size
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            raise


def _sync_folder(folder: Path) -> None:
    """Returns when the names in it are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
