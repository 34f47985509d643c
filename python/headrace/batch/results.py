"""The results of a job: the file of answers, that of errors, and which rows are in them."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from headrace.batch.ledger import Ledger
from headrace.batch.result_files import ResultFile

_ID = re.compile(r"batch_req_(\d{1,18})")
_BEGINS = b'{"id": "batch_req_'


def result_id(number: int) -> str:
    """The id of a row's result, which says the row."""
    return f"batch_req_{number}"


class Results:
    """Open files, and what they held when they were opened: the rows that are done.

    with Results(output, errors) as results: ...
    """

    def __init__(self, output: Path, errors: Path, *, overwrite: bool = False) -> None:
        """overwrite: whatever the files hold, it goes.

        Raises OSError, and ValueError if a file holds anything but results of a batch job.
        """
        self._ledger = Ledger()
        self._files: list[ResultFile] = []
        try:
            for path in (output, errors):
                self._files.append(ResultFile(path))
            self._output, self._errors = self._files
            for file in self._files:
                if overwrite:
                    file.clear()
                file.recover(_BEGINS, self._note)
        except BaseException:
            self.close()
            raise
        self.done_before = self._ledger.done

    def __str__(self) -> str:
        return f"{self._output.path} and {self._errors.path}"

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_done(self, number: int, custom_id: str | None) -> bool:
        """Whether a row had its result. Raises ValueError if it was that of another custom_id."""
        return self._ledger.is_done(number, custom_id)

    def take_id(self, custom_id: str) -> bool:
        """False if an earlier row has taken it."""
        return self._ledger.take_id(custom_id)

    def add_answer(self, line: dict[str, Any]) -> None:
        self._output.append(line)

    def add_error(self, line: dict[str, Any]) -> None:
        self._errors.append(line)

    @property
    def has_errors(self) -> bool:
        return not self._errors.is_empty

    def close(self) -> None:
        """Everything is on the disk then. Raises OSError if it can't be; all is closed even so."""
        with contextlib.ExitStack() as open_files:
            for file in self._files:
                open_files.callback(file.close)
            self._files = []
            self._ledger.close()

    def _note(self, line: bytes) -> bool:
        try:
            value = json.loads(line)
            found = _ID.fullmatch(value["id"])
            custom_id = value["custom_id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if not found or not (custom_id is None or isinstance(custom_id, str)):
            return False
        return self._ledger.add_done(int(found[1]), custom_id)
