"""Reading files of a model folder, which may hold anything under their names."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError

# In the order of preference.
VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spm.model",
    "ernie_token_100k.model",
    "qwen.tiktoken",
    "tiktoken.model",
    "tekken.json",
)
MAX_SIDE_FILE_BYTES = 16 << 20
SPECIAL_TOKEN_KEYS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(path: Path, limit: int = MAX_SIDE_FILE_BYTES) -> bytes | None:
    """A whole file of at most `limit` bytes; None if there is none of that name.

    Raises TokenizerError, which names it, for what is no file, is larger or can't be read.
    """
    try:
        # Without O_NONBLOCK a pipe waits here for somebody to write to it.
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
                raise TokenizerError(f"{path} must be a file, but is {kind}")
            if status.st_size > limit:
                raise _too_large(path, status.st_size, limit)
            data = file.read(status.st_size + 1)  # one more: it may have grown
    except (FileNotFoundError, NotADirectoryError):
        if not path.is_symlink():
            return None
        raise TokenizerError(f"{path} is a link to a file that isn't there") from None
    except IsADirectoryError:
        raise TokenizerError(f"{path} must be a file, but is a folder") from None
    except OSError as error:
        raise TokenizerError(f"{path} can't be read: {error.strerror}") from error
    except MemoryError as error:
        raise TokenizerError(f"{path}: there is not enough memory to read it") from error
    if len(data) > limit:
        raise _too_large(path, len(data), limit)
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def _too_large(path: Path, size: int, limit: int) -> TokenizerError:
    return TokenizerError(f"{path} has {size} bytes, more than the {limit} allowed")


def read_text(path: Path) -> str | None:
    """A UTF-8 text file; None if there is none."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if there is none."""
    text = read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}") from error
    except MemoryError as error:
        raise TokenizerError(f"{path}: there is not enough memory to read it") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value
