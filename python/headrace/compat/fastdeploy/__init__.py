"""FastDeploy's names and module paths: `import fastdeploy` finds this package (see compat)."""

from __future__ import annotations

from typing import Any

import headrace

__all__ = list(headrace.__all__)


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(headrace, name)


def __dir__() -> list[str]:
    return __all__
