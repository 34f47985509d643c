"""What an engine of the comparison is asked for: the same of all."""

from dataclasses import dataclass

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
