"""Where LoRA adapters are, and what they are called."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SUFFIX = ".aslora"


def adapter_name(lora_name: str) -> str:
    """What an adapter is called in the engine: its file's or folder's name."""
    name = os.path.basename(lora_name.rstrip("/"))
    return name[: -len(_SUFFIX)] if name.endswith(_SUFFIX) else name


class AdapterFolders:
    """The folders of adapters by name, as loaders made them known. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[str, Path] = {}

    def note(self, lora_cfg: Mapping[str, Any] | None) -> None:
        """The original's lora_cfg: "input_base_dir" and "lora_names"."""
        if not lora_cfg:
            return
        base = Path(lora_cfg["input_base_dir"])
        with self._lock:
            for name in lora_cfg["lora_names"]:
                self._folders[adapter_name(name)] = base / name

    def find(self, lora_name: str, weights_path: str) -> Path | None:
        """The PEFT folder for a name or path; None if there is none.

        A path, with or without ".aslora"; else a name from `note`; else a folder of that name in
        or beside the model's weights.
        """
        bare = lora_name[: -len(_SUFFIX)] if lora_name.endswith(_SUFFIX) else lora_name
        with self._lock:
            noted = self._folders.get(adapter_name(lora_name))
        weights = Path(weights_path)
        places = [noted, weights / bare, weights.parent / bare]
        if os.path.isabs(lora_name) or os.sep in lora_name:
            places = [Path(lora_name), Path(bare), *places]
        return next((place for place in places if place is not None and place.is_dir()), None)
