"""Folders of the tiny ERNIE-4.5-VL of tests/golden, whole ones and changed ones."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import ROOT
from model_folders import write_json
from vision_folders import ERNIE

sys.path.insert(0, str(ROOT / "tests/golden"))

from vision_conversations import tokenizer, words_of

GOLDEN = ROOT / "tests/golden/vision"
Tensors = dict[str, tuple[str, list[int], bytes]]  # dtype, shape, data


def ernie_folder(folder: Path, case: str = "ernie4_5_vl") -> Path:
    """A whole model folder; config.json and model.safetensors are the golden case's."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_bytes((GOLDEN / case / file).read_bytes())
    sizes = {"patch_size": 4, "merge_size": 2, "min_pixels": 64, "max_pixels": 1024}
    write_json(folder / "preprocessor_config.json", sizes)
    write_json(folder / "video_preprocessor_config.json", {**sizes, "draw_on_frames": False})
    tokenizer(words_of(case)).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"chat_template": ERNIE})
    return folder


def set_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), **values})


def change_tensors(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors: Tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + first : 8 + size + end])
    out, offset, body = {}, 0, b""
    for name, (dtype, shape, content) in change(tensors).items():
        out[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [offset, offset + len(content)],
        }
        offset += len(content)
        body += content
    text = json.dumps(out).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
