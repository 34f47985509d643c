"""What the built objects may not contain.

Set HEADRACE_BUILD_DIR to a CMake build folder (tests/run does)."""

import os
import re
import subprocess
from pathlib import Path

import pytest

BUILD = os.environ.get("HEADRACE_BUILD_DIR")
pytestmark = pytest.mark.skipif(BUILD is None, reason="HEADRACE_BUILD_DIR is not set")

HEADERS = Path(__file__).resolve().parents[2] / "cpp/include/headrace"
C_HEADERS = (HEADERS / "c.h", HEADERS / "c_params.h", HEADERS / "c_text.h")

# The library never aborts, exits or prints. (std::terminate is the run-time's own.)
FORBIDDEN = {
    "abort", "exit", "_exit", "quick_exit", "printf", "puts", "putchar", "fprintf", "vprintf",
    "perror", "_ZSt4cout", "_ZSt4cerr", "_ZSt4clog", "stdout", "stderr", "__assert_fail",
    "__printf_chk", "__fprintf_chk",
}  # fmt: skip


def nm(path: Path) -> list[tuple[str, str]]:
    """(type letter, symbol) of every symbol."""
    out = subprocess.run(["nm", "-p", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(?:^|\s)([A-Za-z?])\s(\S+)$", out, re.MULTILINE)


def libraries() -> list[Path]:
    assert BUILD is not None
    return sorted((Path(BUILD) / "cpp").rglob("libheadrace_*.a"))


def objects(folder: str) -> list[Path]:
    """Of the Python module, or of the CUDA plug-in: its host side is built with the tests."""
    assert BUILD is not None
    return sorted((Path(BUILD) / folder).rglob("CMakeFiles/**/*.o"))


def forbidden_calls(files: list[Path], allowed: frozenset[str] = frozenset()) -> list[str]:
    return [
        f"{file.name}: {name}"
        for file in files
        for kind, name in nm(file)
        if kind == "U" and name.split("@")[0] in FORBIDDEN - allowed
    ]


def isa_objects() -> list[Path]:
    assert BUILD is not None
    return sorted((Path(BUILD) / "cpp/backend/cpu").glob("CMakeFiles/headrace_cpu_*.dir/**/*.o"))


def test_the_library_never_aborts_exits_or_prints() -> None:
    assert libraries(), f"no libraries in {BUILD}"
    bindings, cuda = objects("python/bindings"), objects("cuda/host")
    assert bindings, f"no objects of the bindings in {BUILD}"
    assert cuda, f"no objects of the CUDA backend in {BUILD}"
    assert forbidden_calls(libraries() + bindings + cuda) == []


def test_the_cuda_plugin_never_aborts_exits_or_prints() -> None:
    """With what nvcc made, which is there at the end of the stage `cuda`."""
    assert BUILD is not None
    if not (Path(BUILD) / "libheadrace_cuda.so").exists():
        pytest.skip("the CUDA plug-in is not built")
    files = objects("cuda")
    by_nvcc = [file for file in files if file.name.endswith(".cu.o")]
    sources = list((HEADERS.parents[2] / "cuda/kernels").rglob("*.cu"))
    assert {f"{source.name}.o" for source in sources} <= {file.name for file in by_nvcc}
    assert forbidden_calls([file for file in files if file not in by_nvcc]) == []
    # nvcc has the host's copies of device functions, which nobody calls, end in exit().
    assert forbidden_calls(by_nvcc, frozenset({"exit"})) == []


def exported(demangled: bool = False) -> list[str]:
    """What the shared library offers, without its symbol versions."""
    assert BUILD is not None
    command = ["nm", "-D", "--defined-only", *(["-C"] if demangled else [])]
    library = Path(BUILD) / "libheadrace.so"
    out = subprocess.run([*command, library], capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r"^\S+ [TVWBDRu] (.+?)@@HEADRACE_", out, re.MULTILINE)
    assert len(symbols) == len([line for line in out.splitlines() if " A HEADRACE_" not in line])
    return symbols


def test_the_shared_library_exports_the_c_api() -> None:
    text = "".join(header.read_text().split('extern "C"')[1] for header in C_HEADERS)
    declared = set(re.findall(r"\b(headrace_\w+)\(", text))
    found = {name for name in exported() if not name.startswith("_Z")}
    assert len(declared) > 30
    assert found == declared


def test_the_shared_library_exports_the_public_cpp_names_and_no_others() -> None:
    names = [name for name in exported(demangled=True) if not name.startswith("headrace_")]
    public = re.compile(r"(typeinfo (name )?for |vtable for )?headrace::v0::\w")
    inner = re.compile(r"^(\S+ for )?headrace::v0::\w+::(Impl|Shared)\b")
    assert [n for n in names if not public.match(n) or inner.match(n)] == []
    for name in ("Error", "InternalError", "TokenConstraint", "TokenMatcher"):
        assert f"typeinfo for headrace::v0::{name}" in names  # catch and dynamic_cast across it
    # One definition of each function is enough to see that its file is in the library.
    for header in HEADERS.glob("*.h"):
        marked = r"^(?:class HEADRACE_API (\w+)|HEADRACE_API [^(;]*?(\w+)\()"
        for kind, function in re.findall(marked, header.read_text(), re.MULTILINE):
            assert any(f"headrace::v0::{kind or function}" in n for n in names), header.name


def test_isa_objects_leak_no_shared_symbols() -> None:
    """A weak function compiled with AVX-512 could replace the baseline's copy at link time."""
    folders = " ".join(str(path) for path in isa_objects())
    for isa in ("baseline", "avx2", "avx512", "avx512_bf16"):
        assert f"headrace_cpu_{isa}.dir" in folders, f"where are the objects of {isa}?"
    for isa in ("baseline", "avx2", "avx2_vnni", "avx512", "avx512_vnni"):
        assert f"headrace_cpu_quant_{isa}.dir" in folders, f"where are the objects of {isa}?"
    bad = [
        f"{obj.name}: {kind} {name}"
        for obj in isa_objects()
        for kind, name in nm(obj)
        if kind in "WVuvw" and name != "__gxx_personality_v0"
    ]
    assert not bad, bad
