"""Every header compiles alone. Of most, the build shows it: some .cc includes them first. The
others are compiled here, several in a run where that shows the same (see `chains`)."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SIMD = ROOT / "cpp/backend/cpu/simd"
PUBLIC = ROOT / "cpp/include/headrace"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]  # of their users


def first_include(source: Path) -> str:
    found = re.search(r'^#include [<"](.*)[>"]', source.read_text(), re.MULTILINE)
    return found[1] if found else ""


def name_of(header: Path) -> str:
    """As it is included."""
    return str(header.relative_to(ROOT / "cpp")).removeprefix("include/")


def headers() -> list[tuple[Path, tuple[str, ...]]]:
    """The others with their compiler flags. simd.h and int8.h are one header each in several files:
    their parts are compiled through them, once per ISA."""
    folders = ("cpp", "cuda", "tests", "python", "benchmarks")
    sources = [source for folder in folders for source in (ROOT / folder).rglob("*.cc")]
    shown = set(map(first_include, sources))
    found = []
    for header in sorted((ROOT / "cpp").rglob("*.h")):
        if header.parent != SIMD and name_of(header) not in shown:
            public = WARNINGS if header.parent == PUBLIC else []
            found.append((header, ("-DHEADRACE_ISA=baseline", *public)))
    for isa, flags in (("baseline", []), ("avx2", AVX2), ("avx512", AVX512)):
        for name in ("simd.h", "int8.h"):
            found.append((SIMD / name, (f"-DHEADRACE_ISA={isa}", *flags)))
    return found


@cache
def included(header: Path) -> frozenset[Path]:
    """All headers of ours that it includes, directly or not."""
    own: set[Path] = set()
    for name in INCLUDE.findall(header.read_text()):
        for folder in (ROOT / "cpp", ROOT / "cpp/include", header.parent):
            if (folder / name).is_file():
                own |= {folder / name, *included(folder / name)}
                break
    return frozenset(own)


def chains(group: list[Path]) -> list[list[Path]]:
    """The headers in as few lists as can be, in each of which a header includes all before it.

    In a file that includes such a list, nothing helps a header but what it includes itself. Whom
    each follows is a matching between headers and those that include them (Kuhn's algorithm).
    """
    users = {header: [user for user in group if header in included(user)] for header in group}
    follows: dict[Path, Path] = {}

    def place(header: Path, seen: set[Path]) -> bool:
        for user in users[header]:
            if user not in seen:
                seen.add(user)
                if user not in follows or place(follows[user], seen):
                    follows[user] = header
                    return True
        return False

    for header in group:
        place(header, set())
    found = []
    for last in set(group) - set(follows.values()):
        chain = [last]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        found.append(chain[::-1])
    return found


def units() -> list[tuple[tuple[str, ...], list[Path]]]:
    """What is compiled: flags, and a chain of headers."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for header, flags in headers():
        groups.setdefault(flags, []).append(header)
    return [(flags, chain) for flags, group in groups.items() for chain in chains(group)]


def compile_unit(unit: tuple[tuple[str, ...], list[Path]]) -> str:
    flags, chain = unit
    import nlohmann_json

    json_include = Path(next(iter(nlohmann_json.__path__))) / "include"
    includes = ["-I.", "-Iinclude", f"-I{json_include}"]
    result = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", *includes, *flags, "-x", "c++", "-"],
        input="".join(f'#include "{name_of(header)}"\n' for header in chain),
        cwd=ROOT / "cpp",
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if result.returncode == 0 else result.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_every_header_compiles_alone() -> None:
    with ThreadPoolExecutor(2) as pool:
        failures = list(filter(None, pool.map(compile_unit, units())))
    assert not failures, "\n".join(failures)


def test_a_header_follows_only_those_that_it_includes() -> None:
    compiled = [header for _, chain in units() for header in chain]
    assert sorted(compiled) == sorted(header for header, _ in headers())
    for _, chain in units():
        for place, header in enumerate(chain):
            assert set(chain[:place]) <= included(header), header
    assert len(units()) < len(compiled) * 0.75, "nothing is gained"


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
