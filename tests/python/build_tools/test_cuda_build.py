"""How the CUDA plug-in is built: which toolkit, and what ptxas may say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def put(file: Path, body: str) -> Path:
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)
    return file


SPILL = """ptxas info    : Compiling entry function '_Z6kernelv' for 'sm_80'
ptxas info    : Function properties for _Z6kernelv
    0 bytes stack frame, {} bytes spill stores, 8 bytes spill loads"""
SERIALIZED = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized"


class Ptxas:
    def __init__(self, folder: Path) -> None:
        self.allowed = folder / "allowed.txt"
        self.allowed.write_text("")
        self.output = folder / "kernel.o"
        self.nvcc = folder / "nvcc"

    def check(self, says: str, code: int = 0, **environment: str) -> tuple[int, str]:
        put(self.nvcc, f'cat >&2 <<"END"\n{says}\nEND\necho made > "$2"; exit {code}')
        tool = ROOT / "cuda/tools/check_ptxas.py"
        done = subprocess.run(
            [sys.executable, tool, self.allowed, self.nvcc, "-o", self.output],
            capture_output=True,
            text=True,
            env=os.environ | environment,
        )
        return done.returncode, done.stderr


@pytest.fixture
def ptxas(tmp_path: Path) -> Ptxas:
    return Ptxas(tmp_path)


def test_ptxas_statistics_are_left_out(ptxas: Ptxas) -> None:
    says = "ptxas info    : Used 4 registers, used 0 barriers\na.cu(1): warning: unused"
    assert ptxas.check(says) == (0, "a.cu(1): warning: unused\n")
    assert ptxas.output.exists()


def test_a_spill_is_an_error_unless_it_is_named(ptxas: Ptxas) -> None:
    code, text = ptxas.check(SPILL.format(16))
    assert code == 1
    assert "spills on sm_80: _Z6kernelv: 16 bytes stored, 8 loaded" in text
    assert not ptxas.output.exists()
    ptxas.allowed.write_text("sm_80 kernel  # it is cold\n")
    assert ptxas.check(SPILL.format(16)) == (0, "")


def test_what_ptxas_says_of_slow_code_is_an_error(ptxas: Ptxas) -> None:
    code, text = ptxas.check(SERIALIZED)
    assert (code, SERIALIZED in text, ptxas.output.exists()) == (1, True, False)


def test_where_one_measures_it_only_warns(ptxas: Ptxas) -> None:
    code, text = ptxas.check(SERIALIZED, HEADRACE_PTXAS_CHECK="warn")
    assert (code, SERIALIZED in text, ptxas.output.exists()) == (0, True, True)


def test_a_failed_compilation_stays_one(ptxas: Ptxas) -> None:
    assert ptxas.check("a.cu(1): error: no", code=2)[0] == 2


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
@pytest.mark.parametrize(
    ("toolkit", "cmake", "says"),
    [
        ("12.4", "4.0", "is of CUDA 12.4: install CUDA 12.5 or later"),
        ("", "4.0", "install CUDA 12.5 or later"),
        ("13.0", "3.25.1", "this is CMake 3.25.1: install CMake 3.25.2 or later"),
    ],
)
def test_old_tools_are_refused_by_their_version(
    tmp_path: Path, toolkit: str, cmake: str, says: str
) -> None:
    nvcc = put(tmp_path / "nvcc", f"echo 'Cuda compilation tools, release {toolkit}, V{toolkit}.1'")
    script = tmp_path / "CMakeLists.txt"
    script.write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(x NONE)\n"
        f"set(CMAKE_VERSION {cmake})\ninclude({ROOT}/cmake/HeadraceCuda.cmake)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DHEADRACE_NVCC={nvcc}"]
    done = subprocess.run([*command, "-DHEADRACE_CUDA=ON"], capture_output=True, text=True)
    assert done.returncode != 0
    assert says in " ".join(done.stderr.split())
    assert subprocess.run([*command, "-DHEADRACE_CUDA=OFF"], capture_output=True).returncode == 0
