"""Packed files: a model's weights the way this machine's kernels read them (docs/packed.md).

    packed.pack("path/to/model", "/cache/model.headrace")
    llm = LLM("path/to/model", packed_weights="/cache/model.headrace")

A start then maps the weights instead of converting them. A packed file that doesn't fit its model
or this machine any more is never used: loading it is an error that says what to do.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace import _core
from headrace.hub import checked_path, resolve_model
from headrace.options.quantization import engine_quantization

FILE_NAME = _core.PACKED_FILE_NAME
_SUFFIX = ".headrace"
_SETTINGS = ("*.json", "*.model", "*.jinja", "*.txt")
_WEIGHTS_INDEX = ".safetensors.index.json"
_LONGEST_HEADER = 64 << 20
_FACTS = (
    "written_by",
    "layout",
    "dtype",
    "quantization",
    "quantization_group_size",
    "tensor_parallel_size",
    "enable_expert_parallel",
)
_KEPT_DTYPES = ("bfloat16", "float16")

PathLike = str | os.PathLike[str]


def pack(
    model: PathLike,
    out: PathLike,
    *,
    dtype: str = "auto",
    quantization: Any = None,
    num_threads: int = 0,
    tensor_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    skip_if_current: bool = False,
    overwrite: bool = False,
    progress: Callable[[str, int, int], object] | None = None,
) -> _core.PackReport | None:
    """Packs a model's weights; holds one of them in memory at a time.

    model: a folder, or the id of a model on the hub.
    out: a file whose name ends in ".headrace"; or a folder, which gets the packed file and copies
        of the configuration and the tokenizer: LLM(out) then needs the original no more.
    dtype: that the weights are kept in: "auto" (the checkpoint's), "float32", "bfloat16" or
        "float16".
    quantization: as LLM takes it.
    tensor_parallel_size, enable_expert_parallel: as the model will be loaded: the file then holds
        each device's part, for that number of devices alone.
    skip_if_current: do nothing, and return None, if the file is there and is_current(); replace an
        older packed file.
    overwrite: replace whatever is in the way. Without it a file with other contents than would be
        written is a FileExistsError, and nothing is written.
    progress: told how far it is, as Engine.install_model tells it.

    The file appears whole or not at all. Ctrl-C ends it. Raises HeadraceError, OSError, and
    ValueError for an empty path.
    """
    folder = resolve_model(model)
    target = Path(checked_path(out, "the path to write to"))
    is_folder = target.suffix != _SUFFIX
    file = target / FILE_NAME if is_folder else target
    name, group_size = engine_quantization(quantization)
    options = _core.ModelOptions(
        path=str(folder),
        dtype=dtype,
        quantization=name or "none",
        quantization_group_size=group_size,
        num_threads=num_threads,
        tensor_parallel_size=tensor_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
    )
    is_current = file.exists() and _is_current(options, file, _kept_dtype(folder, dtype))
    replace = overwrite or (skip_if_current and _is_packed(file))
    if not (is_current or replace):
        _refuse_existing(file)
    if is_folder:
        if not (target.is_dir() and target.samefile(folder)):
            _refuse_weights(target)
            copy_settings(folder, target, overwrite=replace)
        target.mkdir(parents=True, exist_ok=True)
    if skip_if_current and is_current:
        return None
    return _core.pack_model(options, str(file), progress=progress)


def pack_file(model: PathLike, file: PathLike, *, dtype: str = "auto") -> _core.PackReport:
    """Packs into a file of any name, in the place of what is there; nothing else is copied.

    Errors as those of `pack`.
    """
    target = checked_path(file, "the path to write to")
    return _core.pack_model(_core.ModelOptions(path=str(resolve_model(model)), dtype=dtype), target)


def check(
    model: PathLike,
    file: PathLike,
    *,
    dtype: str = "auto",
    tensor_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
) -> None:
    """Raises the HeadraceError with which loading `model` from the packed `file` would fail.

    dtype: "auto" accepts any that the file has. tensor_parallel_size, enable_expert_parallel: as
    the model would be loaded. Reads the whole file.
    """
    folder = resolve_model(model)
    path = checked_path(file, "the path of the packed file")
    options = _core.ModelOptions(
        path=str(folder),
        packed_weights=path,
        dtype=dtype,
        tensor_parallel_size=tensor_parallel_size,
        enable_expert_parallel=enable_expert_parallel,
    )
    _core.check_packed(options)


def describe(file: PathLike) -> dict[str, str]:
    """What the header of a packed file says of it: `layout`, `dtype`, `quantization`,
    `quantization_group_size`, `tensor_parallel_size`, `enable_expert_parallel`, `written_by`
    (docs/packed.md). Its contents are not checked.

    Raises OSError, and ValueError for a file that is no packed file.
    """
    with open(file, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        text = stream.read(min(size, _LONGEST_HEADER))
    try:
        facts = json.loads(text)["__metadata__"]
        if not isinstance(facts, dict) or "headrace_packed" not in facts:
            raise KeyError("headrace_packed")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(file)} is no packed file of Headrace") from error
    return {name: str(facts.get(name, "")) for name in _FACTS}


def _is_current(options: _core.ModelOptions, file: PathLike, dtype: str) -> bool:
    """Whether the file is what pack would make with these options."""
    wanted = _core.ModelOptions(
        path=options.path,
        dtype=dtype,
        quantization=options.quantization,
        quantization_group_size=options.quantization_group_size,
        tensor_parallel_size=options.tensor_parallel_size,
        enable_expert_parallel=options.enable_expert_parallel,
        packed_weights=os.fspath(file),
    )
    try:
        _core.check_packed(wanted)
    except _core.HeadraceError:
        return False
    return True


def is_current(
    model: PathLike,
    file: PathLike,
    *,
    dtype: str = "auto",
    tensor_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
) -> bool:
    """Whether `check` finds nothing."""
    try:
        check(
            model,
            file,
            dtype=dtype,
            tensor_parallel_size=tensor_parallel_size,
            enable_expert_parallel=enable_expert_parallel,
        )
    except _core.HeadraceError:
        return False
    return True


def copy_settings(model: PathLike, folder: PathLike, *, overwrite: bool = True) -> None:
    """Copies everything but the weights: configuration, tokenizer and chat templates. Makes the
    folder.

    overwrite: False: a file that is there with other contents is a FileExistsError, and nothing is
        copied.
    """
    source = Path(checked_path(model, "the path of the model"))
    target = Path(checked_path(folder, "the path to write to"))
    copies = [
        (file, target / file.name)
        for pattern in _SETTINGS
        for file in source.glob(pattern)
        if file.is_file() and not file.name.endswith(_WEIGHTS_INDEX)
    ]
    templates = source / "additional_chat_templates"
    if templates.is_dir():
        files = (file for file in templates.rglob("*") if file.is_file())
        copies += [(file, target / file.relative_to(source)) for file in files]
    # What sentence-transformers says of a model, 1_Pooling/config.json and its like.
    files = (file for file in source.glob("[0-9]_*/config.json") if file.is_file())
    copies += [(file, target / file.relative_to(source)) for file in files]
    for file, copy in copies:
        if not overwrite and copy.exists() and not _same_contents(file, copy):
            _refuse_existing(copy)
    target.mkdir(parents=True, exist_ok=True)
    for file, copy in copies:
        copy.parent.mkdir(exist_ok=True, parents=True)
        _copy(file, copy)


def _same_contents(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)


def _refuse_existing(file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise FileExistsError(
            f"{file} is there already, with other contents than would be written; choose another "
            "place, or say that it may be overwritten (overwrite=True, headrace pack --force)"
        )


def _is_packed(file: Path) -> bool:
    """Whether it is a packed file, of whatever model and version."""
    with contextlib.suppress(OSError, ValueError):
        describe(file)
        return True
    return False


def _copy(file: Path, target: Path) -> None:
    """In one step: nobody sees half a file."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(file, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _kept_dtype(folder: Path, dtype: str) -> str:
    """What "auto" means for a checkpoint."""
    if dtype != "auto":
        return dtype
    stored = _core.model_family(str(folder)).dtype
    return stored if stored in _KEPT_DTYPES else "float32"


def _refuse_weights(folder: Path) -> None:
    """LLM(folder) would load them, not the packed file."""
    for name in ("model.safetensors", "model.safetensors.index.json"):
        if (folder / name).exists():
            raise FileExistsError(
                f"{folder} holds the weights {name} of a model; choose another folder, or name a "
                f"file that ends in {_SUFFIX}"
            )
