"""second_compiler.py reads whatever another folder hasn't compiled in the same way."""

import shutil
import subprocess
from pathlib import Path

import pytest
import second_compiler

PROJECT = """
cmake_minimum_required(VERSION 3.21)
project(two LANGUAGES CXX)
option(HEADRACE_WERROR "" ON)
file(GLOB sources CONFIGURE_DEPENDS *.cc)
add_library(two OBJECT ${sources})
target_compile_definitions(two PRIVATE HEADRACE_ASAN)
"""


def read(folder: Path, built: Path) -> list[str]:
    """The sources that are read again."""
    second_compiler.objects.cache_clear()
    second_compiler.up_to_date.cache_clear()
    return [Path(output).stem for output, _ in second_compiler.units(folder, False, built)]


@pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "ninja", "c++"))),
    reason="needs CMake, Ninja and a compiler",
)
def test_only_what_is_built_in_the_same_way_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "one.h").write_text("")
    (tmp_path / "one.cc").write_text('#include "one.h"\n')
    (tmp_path / "two.cc").write_text("int two = 2;\n")
    folder, built = tmp_path / "folder", tmp_path / "built"
    asked = ["cmake", "-G", "Ninja", "-S", str(tmp_path), "-B", str(built)]
    subprocess.run([*asked, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], check=True, capture_output=True)
    folder.mkdir()
    shutil.copy(built / "CMakeCache.txt", folder)
    commands = (built / "compile_commands.json").read_text().replace(str(built), str(folder))
    (folder / "compile_commands.json").write_text(commands.replace("-DHEADRACE_ASAN", ""))
    both = ["one.cc", "two.cc"]
    assert read(folder, built) == both, "nothing is built yet"
    subprocess.run(["ninja", "-C", built], check=True, capture_output=True)
    assert read(folder, built) == []
    (tmp_path / "one.h").write_text("#pragma once\n")
    assert read(folder, built) == ["one.cc"]
    (folder / "compile_commands.json").write_text(commands.replace("-DHEADRACE_ASAN", "-DOTHER"))
    assert read(folder, built) == both, "it has other definitions"
    (folder / "compile_commands.json").write_text(commands)
    settings = (built / "CMakeCache.txt").read_text()
    (built / "CMakeCache.txt").write_text(settings.replace("WERROR:BOOL=ON", "WERROR:BOOL=OFF"))
    assert read(folder, built) == both, "warnings were no errors there"
