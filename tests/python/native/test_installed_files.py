"""C++ and C programs against what is installed: by `cmake --install`, and by pip.

The examples are built outside the tree with CMake and with pkg-config, and say the same tokens as
Python. Set HEADRACE_BUILD_DIR to a CMake build folder (tests/run does)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace
from headrace import installed_files

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples/tiny_model/checkpoint"
PROMPTS = [[5, 17, 42, 99], [1000, 3], [7, 7, 7]]
BAD_PROMPT = [1, 99999999]
MAX_TOKENS = 12
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


@dataclass(frozen=True)
class Installation:
    include: Path
    cmake_dir: Path
    pkgconfig_dir: Path

    @property
    def library_dir(self) -> Path:
        return self.pkgconfig_dir.parent


def run(*command: str | Path, stdin: str = "", **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def installed_by_cmake(folder: Path) -> Installation:
    build = os.environ.get("HEADRACE_BUILD_DIR")
    if build is None or shutil.which("cmake") is None:
        pytest.skip("needs cmake, and HEADRACE_BUILD_DIR")
    first = folder / "first"
    run("cmake", "--install", build, "--component", "dev", "--prefix", first)
    moved = first.rename(folder / "moved")  # nothing in it may know where it was
    lib = next(moved.glob("**/pkgconfig")).parent
    return Installation(moved / "include", lib / "cmake/headrace", lib / "pkgconfig")


def installed_by_pip() -> Installation:
    try:
        return Installation(
            Path(headrace.get_include()),
            Path(headrace.get_cmake_dir()),
            Path(headrace.get_pkgconfig_dir()),
        )
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["cmake", "pip"])
def installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    if request.param == "pip":
        return installed_by_pip()
    return installed_by_cmake(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """What Python generates from the prompts."""
    params = headrace.SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
    with headrace.LLM(str(MODEL)) as llm:
        outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    return [list(output.outputs.token_ids) for output in outputs]


def build_with_cmake(name: str, installation: Installation, folder: Path) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    run(
        "cmake",
        *("-S", ROOT / "examples" / name, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-Dheadrace_DIR={installation.cmake_dir}", "-DCMAKE_FIND_USE_CMAKE_PATH=OFF"),
        f"-DCMAKE_{'CXX' if name.endswith('cpp') else 'C'}_FLAGS={' '.join(WARNINGS)}",
    )
    run("cmake", "--build", folder)
    return folder / name


def build_with_pkgconfig(
    compiler: Sequence[str], source: Path, installation: Installation, folder: Path
) -> Path:
    tool = shutil.which("pkg-config")
    if tool is None:
        pytest.skip("needs pkg-config")
    flags = run(
        *(tool, "--cflags", "--libs", "headrace"), PKG_CONFIG_PATH=str(installation.pkgconfig_dir)
    ).split()
    program = folder / source.parent.name
    rpath = f"-Wl,-rpath,{installation.library_dir}"
    run(*compiler, *WARNINGS, source, *flags, rpath, "-o", program)
    return program


def read_answers(printed: str) -> tuple[dict[int, list[int]], dict[int, str]]:
    """What embed_cpp prints: tokens and ends by the number of the prompt."""
    tokens: dict[int, list[int]] = {}
    ends: dict[int, str] = {}
    for line in printed.splitlines():
        number, is_tokens, ids = line.partition(": ")
        if is_tokens and number.isdigit():
            tokens.setdefault(int(number), []).extend(map(int, ids.split()))
        else:
            number, _, end = line.partition("= ")
            ends[int(number)] = end
    return tokens, ends


def check_cpp(program: Path, expected: list[list[int]]) -> None:
    lines = [" ".join(map(str, ids)) for ids in [*PROMPTS, BAD_PROMPT]]
    printed = run(program, MODEL, str(MAX_TOKENS), stdin="\n".join(lines) + "\n")
    tokens, ends = read_answers(printed)
    assert [tokens[i] for i in range(len(PROMPTS))] == expected
    assert ends[len(PROMPTS)].startswith("invalid_argument: ")
    assert {ends[i] for i in range(len(PROMPTS))} <= {"stop", "length"}
    failed = subprocess.run([program, "no-such-folder"], stdin=subprocess.DEVNULL, check=False,
                            capture_output=True, text=True)  # fmt: skip
    assert failed.returncode == 1
    assert failed.stderr.startswith("not_found: ")


def check_c(program: Path, expected: list[list[int]]) -> None:
    for prompt, ids in zip(PROMPTS, expected, strict=True):
        printed = run(program, MODEL, *map(str, prompt)).split()
        assert list(map(int, printed))[: len(ids)] == ids
    failed = subprocess.run([program, "no-such-folder", "1"], check=False,
                            capture_output=True, text=True)  # fmt: skip
    assert failed.returncode == 1
    assert "not_found" in failed.stderr


@pytest.fixture(scope="module")
def cpp_program(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_with_cmake("embed_cpp", installation, tmp_path_factory.mktemp("build"))


def test_cpp_with_cmake(cpp_program: Path, expected: list[list[int]]) -> None:
    check_cpp(cpp_program, expected)


def test_c_with_cmake(
    installation: Installation, expected: list[list[int]], tmp_path: Path
) -> None:
    check_c(build_with_cmake("embed_c", installation, tmp_path / "build"), expected)


def test_cpp_with_pkgconfig(
    installation: Installation, expected: list[list[int]], tmp_path: Path
) -> None:
    source = ROOT / "examples/embed_cpp/main.cc"
    check_cpp(build_with_pkgconfig(["g++", "-std=c++20"], source, installation, tmp_path), expected)


def test_c_with_pkgconfig(
    installation: Installation, expected: list[list[int]], tmp_path: Path
) -> None:
    source = ROOT / "examples/embed_c/main.c"
    check_c(build_with_pkgconfig(["gcc", "-std=c99"], source, installation, tmp_path), expected)


TURNS = ["What is 12 + 7?", 'Say "\u00e9\\"']
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
)
SHOWS_TOOLS = """{{ tools | tojson if tools }}{% for m in messages %}
{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.a is integer }}{% endif %}
{{ m.role }}: {{ m.content }}
{% endfor %}Assistant: """


@pytest.fixture(scope="module")
def chat() -> str:
    """What Python's chat says, turn by turn."""
    params = headrace.SamplingParams(temperature=0, max_tokens=200, stop=["\nUser:"])
    messages: list[dict[str, str]] = []
    answers = ""
    with headrace.LLM(str(MODEL)) as llm:
        for turn in TURNS:
            messages.append({"role": "user", "content": turn})
            (output,) = llm.chat(messages, params, use_tqdm=False)
            answers += output.outputs.text + "\n"
            messages.append({"role": "assistant", "content": output.outputs.text})
    return answers


def check_chat(program: Path, chat: str, folder: Path) -> None:
    assert run(program, MODEL, stdin="\n".join(TURNS)) == chat
    answers = json.loads(
        "[" + run(program, MODEL, SCHEMA, stdin="Hi\nHo").replace("}\n{", "},{") + "]"
    )
    assert [list(answer) for answer in answers] == [["n"], ["n"]]
    shutil.copytree(MODEL, folder, copy_function=os.symlink)
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").write_text(SHOWS_TOOLS)
    call, answer = run(program, folder, "--tool", stdin="What is 2 + 3?").split("\n", 1)
    assert re.fullmatch(r'{"a": -?\d+, "b": -?\d+}', call)
    assert answer.strip()
    failed = subprocess.run([program, MODEL, "--tool"], input="Hi", check=False,
                            capture_output=True, text=True)  # fmt: skip
    assert failed.returncode == 1
    assert "tools" in failed.stderr


def test_chat_in_cpp_with_cmake(installation: Installation, chat: str, tmp_path: Path) -> None:
    program = build_with_cmake("chat_cpp", installation, tmp_path / "build")
    check_chat(program, chat, tmp_path / "model")


def test_chat_in_c_with_cmake(installation: Installation, chat: str, tmp_path: Path) -> None:
    program = build_with_cmake("chat_c", installation, tmp_path / "build")
    assert run(program, MODEL, stdin="\n".join(TURNS)) == chat


def test_chat_in_c_with_pkgconfig(installation: Installation, chat: str, tmp_path: Path) -> None:
    source = ROOT / "examples/chat_c/main.c"
    program = build_with_pkgconfig(["gcc", "-std=c99"], source, installation, tmp_path)
    check_chat(program, chat, tmp_path / "model")


def example_of_the_page(number: int, installation: Installation, folder: Path) -> Path:
    page = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
    source = folder / "example/main.cc"
    source.parent.mkdir()
    source.write_text(re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)[number])
    return build_with_pkgconfig(["g++", "-std=c++20"], source, installation, source.parent)


def test_the_page_begins_with_a_chat(installation: Installation, chat: str, tmp_path: Path) -> None:
    program = example_of_the_page(0, installation, tmp_path)
    assert run(program, MODEL, stdin="\n".join(TURNS)) == chat


def test_the_pages_example_of_a_load(installation: Installation, tmp_path: Path) -> None:
    """A load's progress and its end by Ctrl-C."""
    program = example_of_the_page(1, installation, tmp_path)
    lines = run(program, MODEL).splitlines()
    stages = list(dict.fromkeys(line.split(":")[0] for line in lines))
    assert stages == ["opening", "weights", "reserving"]
    done = [int(line.split()[1]) for line in lines if line.startswith("weights")]
    total = int(lines[-2].split()[3])
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    cancelled = subprocess.run([program, MODEL, "now"], capture_output=True, text=True, check=False)
    assert cancelled.returncode == 1
    assert cancelled.stderr.startswith("cancelled: ")
    assert "reserving" not in cancelled.stdout


def test_the_library_is_found_by_its_plain_name(installation: Installation, tmp_path: Path) -> None:
    program = tmp_path / "program"
    lib = installation.library_dir
    run(
        *("gcc", "-std=c99", ROOT / "examples/embed_c/main.c", "-o", program),
        *(f"-I{installation.include}", f"-L{lib}", "-lheadrace", f"-Wl,-rpath,{lib}"),
    )
    assert run(program, MODEL, "5", "17").split()


def test_every_public_header_is_installed(installation: Installation) -> None:
    headers = {path.name for path in (installation.include / "headrace").iterdir()}
    assert headers == {path.name for path in (ROOT / "cpp/include/headrace").iterdir()}


def test_cmake_refuses_another_minor_version(installation: Installation, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(t LANGUAGES NONE)\n"
        f"set(headrace_DIR {installation.cmake_dir})\n"
        "find_package(headrace 0.999 QUIET)\nif(headrace_FOUND)\nmessage(FATAL_ERROR)\nendif()\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build")


def test_text_through_the_cpp_example(cpp_program: Path) -> None:
    text = ROOT / "examples/embed_cpp/text.py"
    prompts = run(sys.executable, text, "encode", MODEL, "What is 2 + 2?", "What is 3 + 4?")
    answers = run(
        sys.executable, text, "decode", MODEL, stdin=run(cpp_program, MODEL, stdin=prompts)
    )
    with headrace.LLM(str(MODEL)) as llm:
        outputs = llm.chat(
            [[{"role": "user", "content": f"What is {sum_}?"}] for sum_ in ("2 + 2", "3 + 4")],
            headrace.SamplingParams(temperature=0, max_tokens=64),
            use_tqdm=False,
        )
    for number, output in enumerate(outputs):
        assert f"[{number}] {output.outputs.text} (stop)" in answers.splitlines()


def test_the_command_prints_the_folders() -> None:
    found = installed_by_pip()
    for flag, value in (
        ("--includes", f"-I{found.include}"),
        ("--cmakedir", str(found.cmake_dir)),
        ("--pkgconfigdir", str(found.pkgconfig_dir)),
    ):
        assert run(sys.executable, "-m", "headrace", flag).strip() == value


def test_a_source_tree_says_that_it_has_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_files, "_PACKAGE", str(ROOT / "python/headrace"))
    for name in ("get_include", "get_cmake_dir", "get_library"):
        with pytest.raises(FileNotFoundError, match="pip"):
            getattr(installed_files, name)()
