"""The files of a model: a published folder, or what serialize_to_path wrote.

serialize_to_path writes, for a model called NAME:
    NAME.asgraph   JSON: what the others are (below)
    NAME.asparam   the weights in Headrace's packed format (docs/packed.md)
    NAME.model/    copies of the configuration and tokenizer files
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import __version__, packed
from headrace.allspark.core import engine_api
from headrace.allspark.enums import AsStatus
from headrace.allspark.errors import AsException
from headrace.quoting import quoted

_FORMAT = "headrace-asgraph"
_VERSION = 1
_MAX_GRAPH_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class ModelFiles:
    """folder: configuration and tokenizer. packed: the weights, "" if they are in the folder."""

    folder: Path
    packed: str = ""
    data_type: str = ""
    quantization: Mapping[str, Any] | None = None


def find_model(model_path: str, weights_path: str) -> ModelFiles:
    """model_path: a published folder or an .asgraph, whose .asparam weights_path is.

    Raises AsException (ALLSPARK_IO_ERROR) for files that are missing or of another kind.
    """
    if os.path.isdir(model_path):
        return ModelFiles(Path(model_path))
    graph = _read_graph(Path(model_path))
    if not os.path.isfile(weights_path):
        raise _io_error(f"there is no file {weights_path}")
    folder = Path(model_path).parent / str(graph["folder"])
    return ModelFiles(folder, weights_path, str(graph["data_type"]), graph["quantization"])


def write_model(
    source: Path,
    target: Path,
    name: str,
    *,
    data_type: str,
    quantization: Mapping[str, Any] | None,
    skip_if_exists: bool,
) -> tuple[str, str]:
    """Packs a published folder; the paths of the .asgraph and the .asparam.

    Raises AsException.
    """
    graph, param, folder = (target / f"{name}.{kind}" for kind in ("asgraph", "asparam", "model"))
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "headrace": __version__,
        "folder": folder.name,
        "data_type": data_type,
        "quantization": None if quantization is None else dict(quantization),
    }
    try:
        target.mkdir(parents=True, exist_ok=True)
        # A model that is to be quantized is packed as it is: whether it can run is said when it is
        # installed.
        if not (skip_if_exists and _is_current(graph, param, source, content)):
            graph.unlink(missing_ok=True)
            packed.pack_file(source, param, dtype=data_type)
        folder.mkdir(exist_ok=True)
        packed.copy_settings(source, folder)
        _write_text(graph, json.dumps(content, indent=2) + "\n")
    except engine_api.HeadraceError as error:
        raise AsException(engine_api.status_of(error), str(error)) from error
    except OSError as error:
        raise _io_error(f"writing to {target}: {error}") from error
    return str(graph), str(param)


def file_versions(graph_path: str, param_path: str) -> tuple[str, str]:
    """The versions of Headrace that wrote them. Raises ValueError if they are other files."""
    try:
        version = str(_read_graph(Path(graph_path))["headrace"])
        with open(param_path, "rb"):
            return version, version
    except (AsException, OSError) as error:
        raise ValueError(f"not the files of a serialized model: {error}") from error


def _is_current(graph: Path, param: Path, source: Path, content: Mapping[str, Any]) -> bool:
    """Whether the files are there and were made from this source in the same way."""
    try:
        if _read_graph(graph) != content:
            return False
        packed.check(source, param, dtype=content["data_type"])
    except (AsException, OSError, engine_api.HeadraceError):
        return False
    return True


def _read_graph(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_GRAPH_BYTES:
            raise _io_error(f"{path} is no .asgraph of Headrace: it is too large")
        graph = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _io_error(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise _io_error(f"{path} is no .asgraph of Headrace: {error}") from error
    if not isinstance(graph, dict) or graph.get("format") != _FORMAT:
        raise _io_error(f"{path} is no .asgraph of Headrace; serialize the model again")
    if graph.get("version") != _VERSION:
        raise _io_error(
            f"{path} has version {quoted(graph.get('version'))}; serialize the model again"
        )
    folder = graph.get("folder")
    if (
        not isinstance(folder, str)
        or folder in ("", ".", "..")
        or os.path.basename(folder) != folder
    ):
        raise _io_error(f"{path}: 'folder' is {quoted(folder)}")
    if not isinstance(graph.get("quantization"), (dict, type(None))):
        raise _io_error(f"{path}: 'quantization' is {quoted(graph['quantization'])}")
    return {"data_type": "", "headrace": "", "quantization": None, **graph}


def _write_text(path: Path, text: str) -> None:
    """In one step: nobody sees half a file."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _io_error(message: str) -> AsException:
    return AsException(AsStatus.ALLSPARK_IO_ERROR, message)
