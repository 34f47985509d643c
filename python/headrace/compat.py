"""Runs a script written for FastDeploy or DashInfer, unchanged:

    python -m headrace.compat script.py [arguments]

`import fastdeploy`, `import dashinfer` and imports from their modules are served from the modules
of the same name in headrace, in the script and in the Python processes that it starts.
`install()` does the same inside a running program.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# The modules that a script may know; what else headrace has isn't theirs.
_FASTDEPLOY = frozenset(
    {
        "fastdeploy",
        "fastdeploy.engine",
        "fastdeploy.engine.args_utils",
        "fastdeploy.engine.request",
        "fastdeploy.engine.sampling_params",
        "fastdeploy.entrypoints",
        "fastdeploy.entrypoints.llm",
        "fastdeploy.entrypoints.openai",
        "fastdeploy.entrypoints.openai.protocol",
        "fastdeploy.input",
        "fastdeploy.input.ernie4_5_tokenizer",
        "fastdeploy.utils",
        "fastdeploy.worker",
        "fastdeploy.worker.output",
    }
)
_DASHINFER = "dashinfer"  # a package of nothing but `allspark`
_CHILDREN = str(Path(__file__).with_name("compat_site"))  # see sitecustomize.py there


class _Alias(ModuleType):
    """A module whose names are another's."""

    def __init__(self, name: str, target: ModuleType) -> None:
        super().__init__(name, target.__doc__)
        self.__dict__["_target"] = target
        if hasattr(target, "__path__"):
            self.__path__: list[str] = []  # a package, whose modules the finder below serves
        if name == _DASHINFER:
            self.__all__: list[str] = []
        elif hasattr(target, "__all__"):
            self.__all__ = list(target.__all__)

    def __getattr__(self, name: str) -> Any:
        target = self.__dict__["_target"]
        if self.__name__ != _DASHINFER and hasattr(target, name):
            value = getattr(target, name)
            if not (isinstance(value, ModuleType) and value.__name__.startswith("headrace.")):
                return value
        # The originals import their submodules themselves: they are there without an import.
        submodule = f"{self.__name__}.{name}"
        if hasattr(target, "__path__") and _target_of(submodule) is not None:
            return importlib.import_module(submodule)
        raise AttributeError(
            f"{self.__name__} has no {name!r} here: it is served by headrace, which doesn't "
            "provide that name"
        )

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_target"])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the aliases and their submodules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = _target_of(fullname)
        return None if own is None else importlib.machinery.ModuleSpec(fullname, self, origin=own)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        target = importlib.import_module(_own_name(spec.name))
        return _Alias(spec.name, target)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the names are the target's."""


def _own_name(fullname: str) -> str:
    _, dot, rest = fullname.partition(".")
    return "headrace" + dot + rest


def _target_of(fullname: str) -> str | None:
    """The module of headrace that serves another one; None if none does."""
    root, _, rest = fullname.partition(".")
    of_allspark = rest.split(".")[0] in ("", "allspark")
    if fullname not in _FASTDEPLOY and not (root == _DASHINFER and of_allspark):
        return None
    own = _own_name(fullname)
    return None if importlib.util.find_spec(own) is None else own


def install() -> None:
    """From now on the aliases are headrace. The real packages are not looked for.

    Python processes that are started from here on have the aliases, too: PYTHONPATH in os.environ
    names a folder for them. Those that are given another environment, or ignore it (`python -I`),
    haven't.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _CHILDREN not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *filter(None, paths)])
    if not any(type(finder).__name__ == _Finder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Runs a script as __main__; its exit status. Tracebacks start at the script."""
    try:
        with io.open_code(str(Path(script).absolute())) as file:
            source = file.read()
    except OSError as error:
        print(f"headrace.compat: cannot read {script}: {error.strerror}", file=sys.stderr)
        return 2
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    install()
    try:
        exec(compile(source, script, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frame of this function, which the script didn't write.
        own = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, own)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m headrace.compat script.py [arguments]", file=sys.stderr)
        return 0 if len(sys.argv) > 1 else 2
    return run_script(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
