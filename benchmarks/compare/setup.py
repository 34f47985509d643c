"""What an engine of the comparison is asked for: the same of all."""

import json
from dataclasses import dataclass
from pathlib import Path

BUDGETS = {"cpu": 512, "cuda": 2048}  # tokens of a step


@dataclass(frozen=True)
class Setup:
    model: str
    weights: str  # "bf16", "int8" or "int4"
    threads: int
    context: int  # tokens of the longest request
    requests: int  # at once
    device: str = "cpu"  # or "cuda", the first GPU

    @property
    def budget(self) -> int:
        return BUDGETS[self.device]


def image_marks(model: str) -> tuple[int, int, int]:
    """The tokens before, of and behind an image, of a folder of make_checkpoint.py."""
    config = json.loads((Path(model) / "config.json").read_text())
    return tuple(config[f"{name}_token_id"] for name in ("vision_start", "image", "vision_end"))
