"""Where this package keeps what C and C++ programs need: headers, library, CMake and pkg-config.

    cmake -S . -B build -Dheadrace_DIR=$(python -m headrace --cmakedir)
    PKG_CONFIG_PATH=$(python -m headrace --pkgconfigdir) pkg-config --cflags --libs headrace

The functions raise FileNotFoundError for a package that is not installed (a source tree).
"""

from __future__ import annotations

import glob
import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """The folder for a compiler's -I: the headers are <headrace/engine.h> and so on."""
    return os.path.dirname(_only("include/headrace"))


def get_cmake_dir() -> str:
    """The folder of headraceConfig.cmake, for CMake's headrace_DIR."""
    return os.path.dirname(_only("lib/cmake/headrace/headraceConfig.cmake"))


def get_pkgconfig_dir() -> str:
    """The folder of headrace.pc, for PKG_CONFIG_PATH."""
    return os.path.dirname(_only("lib/pkgconfig/headrace.pc"))


def get_library() -> str:
    """The shared library, for programs that open it themselves: its C API is headrace/c.h."""
    return _only("lib/libheadrace.so.*")


def _only(pattern: str) -> str:
    found = glob.glob(os.path.join(glob.escape(_PACKAGE), *pattern.split("/")))
    if len(found) != 1:
        raise FileNotFoundError(
            f"{_PACKAGE} has no {pattern}: it is not an installed package. Install it with pip, or "
            "the C++ library alone with cmake --install"
        )
    return found[0]
