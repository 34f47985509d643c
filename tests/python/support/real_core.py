"""The engine's own module, for what the fake shares with it: errors, and what works on texts.

Not imported by its name: a script that puts the fake in its place must not find it in the package.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

_NAME = "headrace._core"


def _load() -> ModuleType:
    known = sys.modules.get(_NAME)
    if known is not None:
        return known
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.loader is None:
        raise ImportError("the tests need the engine: build it (docs/developing.md)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module  # it can be made only once
    spec.loader.exec_module(module)
    return module


core = _load()
