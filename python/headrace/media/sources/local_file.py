"""`file://` addresses, and files that callers name by path."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.errors import MediaError
from headrace.quoting import quoted

_LONGEST_URL = 3 * 4096  # a path of PATH_MAX, percent-encoded


def checked_folder(path: str | os.PathLike[str] | None) -> Path | None:
    """`allowed_local_media_path` with its links resolved; None and "" allow nothing. Raises
    ValueError for what is no folder."""
    if path is None or os.fspath(path) == "":
        return None
    folder = Path(os.path.realpath(path))
    if not folder.is_dir():
        raise ValueError(f"allowed_local_media_path {quoted(str(path))} is no folder")
    return folder


def read_file_url(url: str, allowed: Path | None, max_bytes: int) -> bytes:
    """The file that a `file://` address names, if it lies in `allowed` once links are followed.

    Raises MediaError; what lies outside is not opened, nor does the error tell if it's there.
    """
    if allowed is None:
        raise MediaError(
            "file:// addresses are off: set allowed_local_media_path to allow a folder"
        )
    if len(url) > _LONGEST_URL:
        raise MediaError(f"the address has {len(url)} characters, more than {_LONGEST_URL}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise MediaError(f"the address {quoted(url)} is malformed: {error}") from None
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise MediaError(f"{quoted(url)} must read file:///PATH")
    path = unquote(parts.path)
    if "\0" in path or not path.startswith("/"):
        raise MediaError(f"{quoted(url)} must read file:///PATH")
    try:
        real = Path(os.path.realpath(path))
    except ValueError as error:  # lone surrogates
        raise MediaError(f"{quoted(path)} is no path: {error}") from None
    if not real.is_relative_to(allowed):
        raise MediaError(f"{quoted(path)} is not in allowed_local_media_path")
    return read_path(real, max_bytes, inside=allowed)


def read_path(path: str | os.PathLike[str], max_bytes: int, inside: Path | None = None) -> bytes:
    """A regular file of at most `max_bytes`. inside: a folder that the opened file must lie in,
    whatever happened to the links on its way meanwhile. Raises MediaError."""
    name = quoted(os.fspath(path))
    try:
        # Without O_NONBLOCK a pipe waits here for somebody to write to it.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise MediaError(f"{name} can't be opened: {_reason(error)}") from None
    try:
        # fdopen() leaves what it refuses open, such as a folder.
        with os.fdopen(number, "rb", closefd=False) as file:
            if inside is not None and not Path(
                os.readlink(f"/proc/self/fd/{number}")
            ).is_relative_to(inside):
                raise MediaError(f"{name} is not in allowed_local_media_path")
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                raise MediaError(f"{name} is no regular file")
            data = b"" if status.st_size > max_bytes else file.read(max_bytes + 1)
    except OSError as error:
        raise MediaError(f"{name} can't be read: {_reason(error)}") from None
    finally:
        os.close(number)
    if status.st_size > max_bytes or len(data) > max_bytes:
        raise MediaError(f"{name} has {status.st_size} bytes, more than {max_bytes}")
    return data


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
