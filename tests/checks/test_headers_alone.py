"""Every header compiles alone. Of most, the build shows it: some .cc includes them first. The
others are compiled here, several in a run where none can help another (see `helps`)."""

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
SYSTEM = re.compile(r"^\s*#\s*include\s+<([^>]+)>", re.MULTILINE)
DECLARED = re.compile(
    r"\b(?:class|struct|enum class|enum|union|using|define|concept)\s+(?:HEADRACE_\w+\s+)?"
    r"(\w+)\b(?!\s*;)|\b(\w+)\s*[({=]"
)
WORD = re.compile(r"[A-Za-z_]\w*")
# The standard library's names, behind headers that are documented to have them.
STANDARD = """
algorithm any_of max min
array array
atomic atomic
chrono chrono
condition_variable condition_variable
cstddef byte size_t
cstdint int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
cstring memcpy memset
exception current_exception exception_ptr
functional function
initializer_list initializer_list
limits numeric_limits
map map
memory shared_ptr unique_ptr
mutex mutex unique_lock
optional nullopt optional
set set
span span
stddef.h size_t
stdint.h int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
stop_token stop_token
string size_t string
string_view string_view
type_traits is_standard_layout_v is_trivially_copyable_v
utility exchange move pair
variant get in_place_index variant
vector size_t vector
"""
# Names without std:: in front, as C has them: types, functions, and macros but our own.
PLAIN = re.compile(
    r"\b(?:u?int\w*_t|size_t|ptrdiff_t|max_align_t|(?:mem|str)\w+(?=\()|assert|errno|offsetof"
    r"|abort|exit|getenv|malloc|calloc|realloc|free|s?n?printf|f?abs[fl]?|NULL"
    r"|(?!HEADRACE_)[A-Z][A-Z0-9]*_(?:MAX|MIN|C|EPSILON))\b(?!_)"
)
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


@cache
def system_headers(header: Path) -> frozenset[str]:
    """Those that it names, or a header of ours that it includes."""
    return frozenset(
        name for one in {header, *included(header)} for name in SYSTEM.findall(one.read_text())
    )


@cache
def code(header: Path) -> str:
    text = re.sub(r"//.*|^\s*#\s*include.*", "", header.read_text(), flags=re.MULTILINE)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text)


@cache
def words(header: Path) -> frozenset[str]:
    return frozenset(WORD.findall(code(header)))


@cache
def declares(header: Path) -> frozenset[str]:
    """What its lines that aren't indented define: so do those of a namespace."""
    inner = (" ", "}", "namespace", "extern", "#if")
    lines = (line for line in code(header).splitlines() if not line.startswith(inner))
    found = (name for line in lines for name in DECLARED.findall(line))
    return frozenset(one or other for one, other in found)


@cache
def names_its_system_headers(header: Path) -> bool:
    """Whether each name of the standard library comes from a header that it names."""
    used = {*re.findall(r"std::(\w+)", code(header)), *PLAIN.findall(code(header))}
    named = system_headers(header)
    rows = (row.split() for row in STANDARD.strip().splitlines())
    return used <= {name for row in rows if row[0] in named for name in row[1:]}


def helps(first: Path, second: Path) -> bool:
    """Whether `second` might compile only behind `first`, or only without it."""
    if first in included(second):
        return False
    if not (system_headers(first) <= system_headers(second) or names_its_system_headers(second)):
        return True
    own = {second, *included(second)}
    foreign = {first, *included(first)} - own
    known = words(second).union(*map(declares, own))
    return any(not known.isdisjoint(declares(header)) for header in foreign)


def groups_of(headers: list[Path]) -> list[list[Path]]:
    """The headers in few lists, in each of which no header helps one behind it."""
    found: list[list[Path]] = []
    for header in sorted(headers, key=lambda header: (len(included(header)), header)):
        for group in found:
            if not any(helps(first, header) for first in group):
                group.append(header)
                break
        else:
            found.append([header])
    return found


def units() -> list[tuple[tuple[str, ...], list[Path]]]:
    """What is compiled: flags, and headers."""
    by_flags: dict[tuple[str, ...], list[Path]] = {}
    for header, flags in headers():
        by_flags.setdefault(flags, []).append(header)
    return [(flags, group) for flags, found in by_flags.items() for group in groups_of(found)]


def compile_unit(unit: tuple[tuple[str, ...], list[Path]]) -> str:
    flags, group = unit
    import nlohmann_json

    json_include = Path(next(iter(nlohmann_json.__path__))) / "include"
    includes = ["-I.", "-Iinclude", f"-I{json_include}"]
    result = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", *includes, *flags, "-x", "c++", "-"],
        input="".join(f'#include "{header}"\n' for header in group),
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


def test_few_runs_compile_all_of_them() -> None:
    compiled = [header for _, group in units() for header in group]
    assert sorted(compiled) == sorted(header for header, _ in headers())
    assert len(units()) <= len(compiled) / 3


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("#include <vector>\n", "inline std::vector<int> many() { return {}; }\n"),
        ("#include <cstdint>\n", "struct Many {\n  int64_t count = 0;\n};\n"),
        ("#include <climits>\n", "struct Many {\n  int count = INT_MAX;\n};\n"),
        ("#include <cassert>\n", "inline void many(int a) { assert(a > 0); }\n"),
        ("struct One {\n  int a = 0;\n};\n", "inline int many(const One& one) { return one.a; }\n"),
        ("struct One {\n  int a = 0;\n};\n", "struct Many {\n  One one;\n};\n"),
        ("constexpr int kOne = 1;\n", "struct Many {\n  int count = kOne;\n};\n"),
        ("inline int one() { return 1; }\n", "inline int many() {\n  return one();\n}\n"),
    ],
)
def test_what_needs_another_header_does_not_compile(
    tmp_path: Path, first: str, second: str
) -> None:
    for name, text in (("first.h", first), ("second.h", second), ("user.h", "")):
        (tmp_path / name).write_text("#pragma once\n" + text)
    headers = [tmp_path / name for name in ("first.h", "second.h", "user.h")]
    headers[2].write_text('#pragma once\n#include "first.h"\n' + second)
    assert not helps(headers[0], headers[2])
    assert compile_unit(((), [headers[0], headers[1]])) == "", "with the first one's help"
    assert [headers[0], headers[1]] not in [group[:2] for group in groups_of(headers[:2])]
    assert any(compile_unit(((), group)) for group in groups_of(headers[:2]))


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
