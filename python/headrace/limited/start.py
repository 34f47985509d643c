"""A Python of this version in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*[a-z]*")
_CODE = "import sys; sys.path += sys.argv[1:-2]; from headrace.limited.worker import main; main()"


def start(
    its_end: socket.socket, handler: str, memory_bytes: int, packages: Sequence[str]
) -> subprocess.Popen[bytes]:
    """A process that answers what comes by the socket (worker.py).

    packages: names of modules that `handler` needs. Raises OSError.
    """
    return subprocess.Popen(
        # Without site-packages, whose .pth files may do anything: the paths are given.
        [
            *(interpreter(), "-I", "-S", "-c", _CODE),
            *_import_paths(packages),
            *(handler, str(memory_bytes)),
        ],
        stdin=its_end.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # Ctrl-C is for this process alone
    )


def interpreter() -> str:
    """In a program that embeds Python, sys.executable is that program. Raises OSError."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
    base = getattr(sys, "_base_executable", None)
    installed = Path(sysconfig.get_config_var("BINDIR") or sys.base_exec_prefix) / "python"
    for path in (sys.executable, base, f"{installed}{version}", f"{sys.exec_prefix}/bin/python3"):
        if path and _INTERPRETER.fullmatch(Path(path).name) and os.access(path, os.X_OK):
            return path
    raise OSError(
        "no Python interpreter is found: where Python is embedded in another program, its own must "
        "be installed too"
    )


def _import_paths(packages: Sequence[str]) -> list[str]:
    """This process's, and where the packages come from, whichever way they were found."""
    found = [_folder_of(name) for name in packages]
    own = str(Path(__file__).absolute().parents[2])
    return list(dict.fromkeys([own, *found, *map(os.path.abspath, sys.path)]))


def _folder_of(name: str) -> str:
    spec = importlib.util.find_spec(name)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return str(Path(places[0]).parent) if places else ""
