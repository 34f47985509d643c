"""Where llguidance is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from headrace.errors import UnsupportedError


def library() -> str:
    """The shared library in the package `llguidance`, which is not imported for it."""
    spec = importlib.util.find_spec("llguidance")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in sorted(Path(folder).glob("_lib*.so")):
            return str(path)
    raise UnsupportedError("guided decoding needs the package llguidance: pip install llguidance")
