"""From what the user calls a model to a local folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from headrace.errors import UnsupportedError
from headrace.quoting import checked_text

_FILES = ("*.json", "*.model", "*.jinja", "*.txt", "*.ttf")
_WEIGHTS = ("*.safetensors",)
_COPIES = ("original/*",)  # the weights again, in their makers' own format
_LFS = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER = 1024  # bytes
_GGUF_ID = re.compile(r".*[-_.]gguf", re.IGNORECASE)
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def checked_path(path: str | os.PathLike[str], name: str) -> str:
    """`path` as a str. Raises TypeError for bytes, and ValueError for an empty one, which would
    mean the current folder, and for what no file can be called."""
    text = checked_text(os.fspath(path), name)
    if not text:
        raise ValueError(f"{name} is empty: give a path, or '.' for the current folder")
    return text


def resolve_model(
    model: str | os.PathLike[str], revision: str = "master", weights: bool = True
) -> Path:
    """The local folder of a model: `model` itself, else fetched from the Hugging Face hub.

    The hub's own environment (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN) applies, and its
    cache is used. Only JSON, text, tokenizer, template, font and (with `weights`) safetensors files
    are fetched. The revision "master" stands for the repository's default branch.

    Raises ValueError for "" and for files that are pointers of git-lfs, FileNotFoundError if there
    is no such folder or repository,
    ImportError if the hub would be needed and huggingface_hub isn't installed, UnsupportedError for
    a GGUF file or a folder or repository of such files.
    """
    name = checked_path(model, "the path of the model")
    folder = Path(name).expanduser()
    if folder.is_dir():
        if weights:
            _refuse_gguf_folder(folder, name)
        _refuse_lfs_pointers(folder, weights)
        return folder
    if _GGUF_ID.fullmatch(name):
        raise _gguf_error(name)
    if folder.exists():
        raise NotADirectoryError(f"{name} is a file; pass the folder that holds config.json")
    if _looks_local(name):
        raise FileNotFoundError(f"There is no model folder {name}")
    return _fetch(name, revision, weights)


def is_hub_id(name: str) -> bool:
    """Whether it is "owner/name" and no path of this machine."""
    return "/" in name and not _looks_local(name) and not os.path.lexists(name)


def _refuse_gguf_folder(folder: Path, name: str) -> None:
    if not (folder / "config.json").exists() and any(folder.glob("*.gguf")):
        raise _gguf_error(name)


def _refuse_lfs_pointers(folder: Path, weights: bool) -> None:
    for pattern in (*_FILES, *(_WEIGHTS if weights else ())):
        for file in folder.glob(pattern):
            try:
                is_pointer = file.is_file() and file.stat().st_size < _MAX_POINTER
                is_pointer = is_pointer and file.read_bytes().startswith(_LFS)
            except OSError:
                continue  # who reads it says what is wrong
            if is_pointer:
                raise ValueError(
                    f"{file} is a pointer of git-lfs, not the file itself: run `git lfs pull` in "
                    "the folder, or fetch the model by its hub id"
                )


def _gguf_error(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name[:200]}: GGUF files aren't read yet. Pass the model it was made from: a folder, "
        "or an id on the Hugging Face hub, with config.json and safetensors files. "
        'quantization="wint4" or "wint8" makes its weights as small at load'
    )


def _looks_local(name: str) -> bool:
    return not _HUB_ID.fullmatch(name) or name.startswith(".") or ".." in name


def _fetch(name: str, revision: str, weights: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"There is no folder {name}, and fetching it from the Hugging Face hub needs a package "
            "that isn't installed: pip install headrace[hub]"
        ) from error
    patterns = [*_FILES, *_WEIGHTS] if weights else list(_FILES)
    branch = None if revision == "master" else revision
    try:
        folder = snapshot_download(
            name, revision=branch, allow_patterns=patterns, ignore_patterns=list(_COPIES)
        )
        return Path(folder)
    except (OSError, ValueError) as error:  # what the hub's many errors derive from
        raise FileNotFoundError(
            f"{name} is neither a local folder, nor in the cache, nor a model that the hub gives "
            f"access to (HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN say where and how): {error}"
        ) from error
