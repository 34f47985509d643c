"""Every header compiles alone."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ISA_FLAGS = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"],
}


def headers() -> list[Path]:
    return sorted((ROOT / "cpp").rglob("*.h"))


def flags_of(header: Path) -> list[str]:
    for isa, flags in ISA_FLAGS.items():
        if header.stem.startswith(isa):
            return [*flags, "-mavx512bf16"] if isa == "avx512" else flags
    return []


def compile_alone(header: Path) -> tuple[Path, str]:
    relative = header.relative_to(ROOT / "cpp")
    name = str(relative).removeprefix("include/")
    import nlohmann_json

    json_include = Path(next(iter(nlohmann_json.__path__))) / "include"
    includes = ["-I.", "-Iinclude", f"-I{json_include}"]
    result = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", *includes, *flags_of(header), "-x", "c++", "-"],
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
