"""Folders of embedding models and rerankers, made of golden checkpoints."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from model_folders import byte_tokenizer, golden_folder, write_json


def add_modules(
    folder: Path, mode: str = "lasttoken", kinds: tuple[str, ...] = ("Normalize",), **config: Any
) -> Path:
    """The files of sentence-transformers. mode: of 1_Pooling/config.json."""
    paths = ["", "1_Pooling", *(f"{i}_{kind}" for i, kind in enumerate(kinds, 2))]
    names = ["Transformer", "Pooling", *kinds]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(zip(paths, names, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    flags = {f"pooling_mode_{name}": name == mode for name in modes}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 64, **flags})
    write_json(folder / "config_sentence_transformers.json", config)
    return folder


def change_config(folder: Path, **keys: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, **keys})
    return folder


def reranker_folder(folder: Path) -> Path:
    """A tokenizer that has "yes", "no" and the marks of Qwen's chats as single tokens."""
    golden_folder("qwen3", folder)
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["yes", "no"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def strip_to_body(folder: Path) -> Path:
    """As AutoModel saves it: names without "model.", and no head."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    kept: dict[str, Any] = {}
    body = b""
    for name, entry in header.items():
        if name in ("__metadata__", "lm_head.weight"):
            continue
        begin, end = entry["data_offsets"]
        offsets = [len(body), len(body) + end - begin]
        kept[name.removeprefix("model.")] = {**entry, "data_offsets": offsets}
        body += data[8 + size + begin : 8 + size + end]
    text = json.dumps(kept).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder
