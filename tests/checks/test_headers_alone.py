"""Every header compiles alone. Of most, the build shows it: their .cc includes them first."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16"]
SIMD = ROOT / "cpp/backend/cpu/simd"
PUBLIC = ROOT / "cpp/include/headrace"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]  # of their users


def first_include(source: Path) -> str:
    found = re.search(r'^#include [<"](.*)[>"]', source.read_text(), re.MULTILINE)
    return found[1] if found else ""


def is_first_of_its_source(header: Path) -> bool:
    source = header.with_suffix(".cc")
    return source.exists() and first_include(source) == str(header.relative_to(ROOT / "cpp"))


def headers() -> list[tuple[Path, list[str]]]:
    """The others with their compiler flags. simd.h and int8.h are one header each in several files:
    their parts are compiled through them, once per ISA."""
    found = []
    for header in sorted((ROOT / "cpp").rglob("*.h")):
        if header.parent != SIMD and not is_first_of_its_source(header):
            public = WARNINGS if header.parent == PUBLIC else []
            found.append((header, ["-DHEADRACE_ISA=baseline", *public]))
    for isa, flags in (("baseline", []), ("avx2", AVX2), ("avx512", AVX512)):
        for name in ("simd.h", "int8.h"):
            found.append((SIMD / name, [f"-DHEADRACE_ISA={isa}", *flags]))
    return found


def compile_alone(case: tuple[Path, list[str]]) -> tuple[Path, str]:
    header, flags = case
    relative = header.relative_to(ROOT / "cpp")
    name = str(relative).removeprefix("include/")
    import nlohmann_json

    json_include = Path(next(iter(nlohmann_json.__path__))) / "include"
    includes = ["-I.", "-Iinclude", f"-I{json_include}"]
    result = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", *includes, *flags, "-x", "c++", "-"],
        input=f'#include "{name}"\n',
        cwd=ROOT / "cpp",
        capture_output=True,
        text=True,
        check=False,
    )
    return header, "" if result.returncode == 0 else result.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_every_header_compiles_alone() -> None:
    with ThreadPoolExecutor(2) as pool:
        failures = [f"{h}:\n{err}" for h, err in pool.map(compile_alone, headers()) if err]
    assert not failures, "\n".join(failures)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_c_header_is_c99() -> None:
    command = ["gcc", "-std=c99", *WARNINGS, "-fsyntax-only", "-Iinclude", "-x", "c", "-"]
    source = '#include "headrace/c.h"\n'
    subprocess.run(command, input=source, cwd=ROOT / "cpp", text=True, check=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("header", ["engine.h", "options.h", "status.h", "pack.h"])
def test_an_older_standard_is_told_what_is_needed(header: str) -> None:
    result = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-Iinclude", "-x", "c++", "-"],
        input=f'#include "headrace/{header}"\n',
        cwd=ROOT / "cpp",
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in result.stderr.splitlines() if "error" in line]
    assert result.returncode != 0
    assert "#error" in errors[0], result.stderr
    assert "-std=c++20" in errors[0], result.stderr
