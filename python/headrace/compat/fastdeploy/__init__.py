"""FastDeploy's names and module paths: `import fastdeploy` finds this package (see compat)."""

from __future__ import annotations

from typing import Any

import headrace
from headrace.compat.fastdeploy.engine.sampling_params import SamplingParams

__all__ = list(headrace.__all__)


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return SamplingParams if name == "SamplingParams" else getattr(headrace, name)


def __dir__() -> list[str]:
    return __all__
