"""Which rows have their results, and which ids have been used. Kept on disk, not in memory."""

from __future__ import annotations

import hashlib
import sqlite3


class Ledger:
    """Rows by number and ids by digest, in a temporary database that goes when it is closed.

    Its memory doesn't grow with the rows.
    """

    def __init__(self) -> None:
        # No name: a file of SQLite's own, which nobody else sees and which is gone at the end.
        self._rows = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE done (number INTEGER PRIMARY KEY, id BLOB)")
        self._rows.execute("CREATE TABLE used (id BLOB PRIMARY KEY) WITHOUT ROWID")
        self.done = 0

    def add_done(self, number: int, custom_id: str | None) -> bool:
        """Notes that a row has its result. False if it had one already."""
        cursor = self._rows.execute(
            "INSERT OR IGNORE INTO done VALUES (?, ?)", (number, _digest(custom_id))
        )
        self.done += cursor.rowcount
        return cursor.rowcount == 1

    def is_done(self, number: int, custom_id: str | None) -> bool:
        """Whether the row has its result. Raises ValueError if that is for another custom_id."""
        found = self._rows.execute("SELECT id FROM done WHERE number = ?", (number,)).fetchone()
        if found is None:
            return False
        if found[0] != _digest(custom_id):
            raise ValueError(
                f"row {number} is not the one that the results were made for: the input has "
                "changed; go on with the file they were begun with, or start anew by force"
            )
        return True

    def take_id(self, custom_id: str) -> bool:
        """False if an earlier row had the id."""
        cursor = self._rows.execute("INSERT OR IGNORE INTO used VALUES (?)", (_digest(custom_id),))
        return cursor.rowcount == 1

    def close(self) -> None:
        self._rows.close()


def _digest(custom_id: str | None) -> bytes:
    if custom_id is None:
        return b""
    return hashlib.blake2b(custom_id.encode(errors="surrogatepass"), digest_size=16).digest()
