"""Files in a folder, by ids that the server makes."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.quoting import quoted
from headrace.server.errors import ApiError

_ID = re.compile(r"(file|batch)-[0-9a-f]{32}")
_MOST_NAME = 200
_MOST_KNOWN = 1 << 20  # bytes of what is known of a file
_TEXT = (str, type(None))
_FIELDS: dict[str, dict[str, Any]] = {
    "file": {"created_at": int, "bytes": int},
    "batch": {
        "created_at": int,
        "status": str,
        "endpoint": str,
        "input_file_id": str,
        "output_file_id": _TEXT,
        "error_file_id": _TEXT,
        "request_counts": dict,
    },
}


logger = logging.getLogger("headrace.server")


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """What the system says of a disk, as ApiError: a full one, or one that can't be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        logger.error("a file can't be written: %s", error)
        what = "the server's disk is full" if full else "the server can't write its files"
        raise ApiError(f"{what}: {error.strerror}", 507, code="disk_full") from error


class FileStore:
    """`ID.data` holds a file's bytes, `ID.json` what is known of it. A name that a client gives is
    kept as text, and never becomes part of a path."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Makes the folder. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self.max_bytes = max_bytes

    @staticmethod
    def new_id(kind: str) -> str:
        return f"{kind}-{uuid.uuid4().hex}"

    def data(self, file_id: str) -> Path:
        """Where a file's bytes are, or will be. Raises ApiError (404) for what is no id."""
        return self._path(file_id, ".data")

    def add(self, file_id: str, name: str, purpose: str) -> dict[str, Any]:
        """Describes a file whose bytes are there. Raises OSError."""
        return self.write(
            file_id,
            {
                "id": file_id,
                "object": "file",
                "bytes": self.data(file_id).stat().st_size,
                "created_at": int(time.time()),
                "filename": name[:_MOST_NAME],
                "purpose": purpose,
                "status": "processed",
            },
        )

    def read(self, file_id: str, kind: str = "file") -> dict[str, Any]:
        """What is known of it. Raises ApiError (404), for one that is damaged or foreign, too."""
        if not file_id.startswith(f"{kind}-"):
            raise _missing(file_id)
        path = self._path(file_id, ".json")
        try:
            if path.stat().st_size > _MOST_KNOWN:
                raise ValueError("it is too large")
            known = json.loads(path.read_bytes())
            _check_known(known, file_id, _FIELDS[kind])
        except FileNotFoundError:
            raise _missing(file_id) from None
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("%s is damaged and left out: %s", path, error)
            raise _missing(file_id) from None
        return dict(known)

    def write(self, file_id: str, known: dict[str, Any]) -> dict[str, Any]:
        """Whole or not at all, also when the machine stops meanwhile. Raises OSError."""
        path = self._path(file_id, ".json")
        new = path.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(json.dumps(known).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        return known

    def list(self, kind: str = "file") -> list[dict[str, Any]]:
        """The newest first."""
        found = []
        for path in self._folder.glob(f"{kind}-*.json"):
            with contextlib.suppress(ApiError):  # gone meanwhile
                found.append(self.read(path.stem, kind))
        return sorted(found, key=lambda known: (known["created_at"], known["id"]), reverse=True)

    def delete(self, file_id: str) -> None:
        """Raises ApiError (404)."""
        self.read(file_id)
        self._path(file_id, ".json").unlink(missing_ok=True)
        self.data(file_id).unlink(missing_ok=True)

    def _path(self, file_id: str, suffix: str) -> Path:
        if not _ID.fullmatch(file_id):
            raise _missing(file_id)
        return self._folder / f"{file_id}{suffix}"


def _check_known(known: Any, file_id: str, fields: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    if not isinstance(known, dict) or known.get("id") != file_id:
        raise ValueError("it isn't of this file")
    for name, kinds in fields.items():
        if not isinstance(known.get(name), kinds):
            raise ValueError(f"{name} is {quoted(known.get(name))}")


def _missing(file_id: str) -> ApiError:
    return ApiError(f"there is no {quoted(file_id)}", 404, code="not_found")
