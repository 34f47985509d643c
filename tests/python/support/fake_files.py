"""What fake_core reads of model folders, and its packed files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fake_options import ModelOptions
from fake_types import Failure, ModelInfo, PackReport


def _eos_ids(folder: Path, config: dict[str, Any]) -> list[int]:
    ids: list[int] = []
    generation = folder / "generation_config.json"
    sources = [config, json.loads(generation.read_text()) if generation.is_file() else {}]
    for source in sources:
        value = source.get("eos_token_id")
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return sorted(set(ids))


def model_family(folder: str) -> ModelInfo:
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise Failure(f"{folder} has no config.json", "not_found")
    config = json.loads((path / "config.json").read_text())
    return ModelInfo(
        path=folder,
        vocab_size=config["vocab_size"],
        max_model_len=config.get("max_position_embeddings", 512),
        eos_token_ids=_eos_ids(path, config),
        vision="vision_config" in config,
    )


PACKED_FILE_NAME = "model.headrace"


def pack_model(options: ModelOptions, file: str) -> PackReport:
    """The packed file holds the source's config.json."""
    model_family(options.path)
    text = Path(options.path, "config.json").read_text()
    Path(file).write_text(text)
    return PackReport(file=file, dtype=options.dtype, file_bytes=len(text))


def check_packed(options: ModelOptions) -> None:
    file = Path(options.packed_weights)
    if not file.is_file():
        raise Failure(f"cannot open {file}", "not_found")
    if file.read_text() != Path(options.path, "config.json").read_text():
        raise Failure(f"{file} is stale", "invalid_state")
