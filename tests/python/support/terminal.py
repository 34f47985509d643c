"""A command on a terminal of its own: a pseudo-terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence

READY = "\x1b[?2004h"  # a line editor waits for keys, and knows what is pasted


class Terminal:
    """Keys go in by `type`; what is shown is waited for piece by piece."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.seen = ""
        self.process_id, self._screen = pty.fork()
        if self.process_id == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
            # Nobody answers prompt_toolkit's question where the cursor is.
            own = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
            os.execve(command[0], list(command), {**environment, **own})

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def came(self, text: str, seconds: float) -> bool:
        """Whether `text` came since the last text that did, within some time."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._screen], [], [], left)[0]:
                return False
            try:
                self.seen += os.read(self._screen, 65536).decode("utf-8", "replace")
            except OSError:  # it has ended
                return False
        self.seen = self.seen.split(text, 1)[1]
        return True

    def wait_for(self, text: str) -> None:
        assert self.came(text, 60), f"no {text!r} in {self.seen!r}"

    def interrupt(self, answer: str) -> None:
        """Ctrl-C until it is heard: readline may miss one as it starts."""
        for _ in range(60):
            self.type("\x03")
            if self.came(answer, 1):
                return
        raise AssertionError(f"no {answer!r} in {self.seen!r}")

    def status(self) -> int:
        """Waits for its end."""
        return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])

    def close(self) -> None:
        """Ends it if it still runs."""
        try:
            os.kill(self.process_id, signal.SIGKILL)
            os.waitpid(self.process_id, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._screen)
