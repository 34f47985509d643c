"""Serves the modules of FastDeploy and DashInfer: one root each."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOTS = {  # the first that fits
    "fastdeploy": "headrace.compat.fastdeploy",
    "dashinfer.allspark": "headrace.allspark",
    "dashinfer": "headrace.compat.dashinfer",
}
_INTERNAL = tuple(f"headrace.allspark.{room}" for room in ("core", "loading", "serving"))
_FORMER_ROOTS = {"headrace.compat.allspark": "headrace.allspark"}  # pickles may name it
_CHILDREN = str(Path(__file__).with_name("site"))  # see sitecustomize.py there


class _Alias(ModuleType):
    """A module whose names are another's."""

    def __init__(self, name: str, target: ModuleType, finder: _Finder) -> None:
        super().__init__(name, target.__doc__)
        self.__dict__.update(_target=target, _finder=finder)
        if hasattr(target, "__path__"):
            self.__path__: list[str] = []  # a package, whose modules the finder below serves
        if hasattr(target, "__all__"):
            self.__all__ = list(target.__all__)

    def __getattr__(self, name: str) -> Any:
        target = self.__dict__["_target"]
        if hasattr(target, name):
            value = getattr(target, name)
            if not (isinstance(value, ModuleType) and value.__name__.startswith("headrace.")):
                return value
        # The originals import their submodules themselves: they are there without an import.
        submodule = f"{self.__name__}.{name}"
        if hasattr(target, "__path__") and self.__dict__["_finder"].target_of(submodule):
            return importlib.import_module(submodule)
        raise AttributeError(
            f"{self.__name__} has no {name!r} here: it is served by headrace, which doesn't "
            "provide that name"
        )

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_target"])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the aliases and their submodules."""

    def __init__(self, roots: Mapping[str, str], hidden: tuple[str, ...] = ()) -> None:
        """`roots`: aliases, and what serves each. hidden: targets that have none."""
        self.roots = roots
        self._hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = self.target_of(fullname)
        return None if own is None else importlib.machinery.ModuleSpec(fullname, self, origin=own)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        return _Alias(spec.name, importlib.import_module(spec.origin), self)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the names are the target's."""

    def target_of(self, fullname: str) -> str | None:
        """The module of headrace that serves another one; None if none does."""
        for root, package in self.roots.items():
            if f"{fullname}.".startswith(f"{root}."):
                own = package + fullname.removeprefix(root)
                if own.startswith(self._hidden) or importlib.util.find_spec(own) is None:
                    return None
                return own
        return None


def install() -> None:
    """From now on the aliases are headrace. The real packages are not looked for.

    Python processes that are started from here on have the aliases, too: PYTHONPATH in os.environ
    names a folder for them. Those that are given another environment, or ignore it (`python -I`),
    haven't.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _CHILDREN not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *filter(None, paths)])
    if not any(_roots_of(finder) is _ROOTS for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(_ROOTS, _INTERNAL))


def _roots_of(finder: Any) -> Any:
    return finder.roots if isinstance(finder, _Finder) else None


sys.meta_path.append(_Finder(_FORMER_ROOTS))
