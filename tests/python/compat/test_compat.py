"""Scripts written for FastDeploy run on headrace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SUPPORT

import headrace

PACKAGE = Path(headrace.__file__).parents[1]

# Puts the fake engine under headrace before the script starts.
RUNNER = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
import fake_core
fake_core.install()
runpy.run_module("headrace.compat", run_name="__main__", alter_sys=True)
"""


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUNNER, SUPPORT, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_script(tmp_path: Path, toy_folder: Path) -> None:
    script = write(
        tmp_path,
        f"""
from fastdeploy import LLM, SamplingParams

conversations = [
    [{{"role": "system", "content": "Be kind."}}, {{"role": "user", "content": "你好"}}],
    [{{"role": "user", "content": "Hello"}}],
]
llm = LLM(model={str(toy_folder)!r}, tensor_parallel_size=1, max_model_len=256)
for output in llm.chat(conversations, SamplingParams(top_p=0.95, max_tokens=64)):
    print(repr(output.prompt), repr(output.outputs.text))
""",
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        repr("<s>Be kind.\nUser: 你好\nAssistant: ")
        + " "
        + repr("Be kind.\nUser: 你好\nAssistant: "),
        repr("<s>User: Hello\nAssistant: ") + " " + repr("User: Hello\nAssistant: "),
    ]


def test_module_paths(tmp_path: Path, toy_folder: Path) -> None:
    script = write(
        tmp_path,
        f"""
import fastdeploy

submodule = fastdeploy.entrypoints.llm.LLM  # without an import of its own

import fastdeploy.engine.request
import headrace
from fastdeploy import LLM, SamplingParams
from fastdeploy.engine.sampling_params import GuidedDecodingParams
from fastdeploy.engine.sampling_params import SamplingParams as Same
from fastdeploy.engine.args_utils import EngineArgs
from fastdeploy.entrypoints.llm import LLM as AlsoSame
from fastdeploy.input.ernie4_5_tokenizer import Ernie4_5Tokenizer
from fastdeploy.utils import EngineError
from fastdeploy.worker.output import Logprob

assert LLM is AlsoSame is submodule is headrace.LLM
assert SamplingParams is Same and issubclass(Same, headrace.SamplingParams)
assert fastdeploy.engine.request.RequestOutput is headrace.RequestOutput
assert fastdeploy.version() == headrace.version()
tokenizer = Ernie4_5Tokenizer.from_pretrained({str(toy_folder)!r})
messages = [{{"role": "user", "content": "hi"}}]
print(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
""",
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "<s>User: hi\n[plain]Assistant: \n"


def test_it_runs_as_main(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 5", "beside.py")
    script = write(
        tmp_path,
        "import sys, beside\n"
        "class Point: pass\n"
        "import pickle\n"
        "assert isinstance(pickle.loads(pickle.dumps(Point())), Point)\n"
        "print(__name__, __file__ == sys.argv[0], sys.argv[1:], beside.VALUE)\n"
        "def f(x: Missing): pass\n",
    )
    done = run(script, "-a", "b")
    # The last line fails unless the script keeps its own __future__ flags.
    assert done.stdout == "__main__ True ['-a', 'b'] 5\n"
    assert done.stderr.endswith("NameError: name 'Missing' is not defined\n")


def test_tracebacks_show_the_script_alone(tmp_path: Path) -> None:
    script = write(tmp_path, "def f():\n    raise ValueError('mine')\n\nf()\n")
    done = run(script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    files = [line for line in lines if line.lstrip().startswith("File ")]
    assert files == [
        f'  File "{script}", line 4, in <module>',
        f'  File "{script}", line 2, in f',
    ]
    assert lines[-1] == "ValueError: mine"


def test_exit_status(tmp_path: Path) -> None:
    assert run(write(tmp_path, "raise SystemExit(7)")).returncode == 7
    assert run(write(tmp_path, "print('ok')")).returncode == 0
    missing = run(tmp_path / "missing.py")
    assert missing.returncode == 2
    assert "cannot read" in missing.stderr
    bad = run(write(tmp_path, "x = ("))
    assert bad.returncode == 1
    assert "SyntaxError" in bad.stderr


def test_names_that_are_not_served(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import importlib\n"
        "for text in ('from fastdeploy import Nothing', 'import fastdeploy.nothing'):\n"
        "    try:\n"
        "        exec(text)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
        "import fastdeploy\n"
        "try:\n"
        "    fastdeploy.Nothing\n"
        "except AttributeError as error:\n"
        "    print(error)\n",
    )
    lines = run(script).stdout.splitlines()
    assert lines[0].startswith("cannot import name 'Nothing' from 'fastdeploy'")
    assert lines[1] == "No module named 'fastdeploy.nothing'"
    assert lines[2].startswith("fastdeploy has no 'Nothing' here: it is served by headrace")


def test_only_the_originals_modules_resolve(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import headrace.llm, headrace.allspark.enums, importlib.util\n"
        "for name in ('fastdeploy.allspark', 'fastdeploy.llm', 'fastdeploy.text.tokenizer',\n"
        "             'dashinfer.llm', 'dashinfer.engine', 'dashinfer.cli'):\n"
        "    root, _, rest = name.partition('.')\n"
        "    found = [hasattr(importlib.import_module(root), rest.partition('.')[0])]\n"
        "    try:\n"
        "        found.append(bool(importlib.import_module(name)))\n"
        "    except ImportError as error:\n"
        "        found.append(str(error))\n"
        "    print(name, *found)\n"
        "import dashinfer\n"
        "print(dashinfer.__all__, hasattr(dashinfer, 'LLM'))\n"
        "own = importlib.util.find_spec('dashinfer.allspark.serving')\n"
        "print(own, hasattr(importlib.import_module('dashinfer.allspark'), 'serving'))\n"
        "print(importlib.import_module('dashinfer.allspark.enums').AsStatus.ALLSPARK_SUCCESS)\n",
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line in lines[:-3]:
        name, attribute, imported = line.split(" ", 2)
        assert (attribute, imported[:15]) == ("False", "No module named"), name
    assert lines[-3:] == ["[] False", "None False", "AsStatus.ALLSPARK_SUCCESS"]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_of_multiprocessing(tmp_path: Path, method: str) -> None:
    script = write(
        tmp_path,
        f"""
import multiprocessing
from fastdeploy import SamplingParams
from fastdeploy.engine.request import CompletionOutput

def work(text):
    from fastdeploy.engine.sampling_params import SamplingParams as Again
    assert Again is SamplingParams
    return CompletionOutput(index=0, send_idx=0, token_ids=[1], text=text)

if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print([output.text for output in pool.map(work, ["a", "b"])])
""",
    )
    done = run(script)
    assert (done.returncode, done.stdout) == (0, "['a', 'b']\n"), done.stderr


def test_subprocesses_of_the_same_python(tmp_path: Path) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    write(hidden, "import builtins\nbuiltins.own_site = 5\n", "sitecustomize.py")
    write(
        tmp_path,
        "import fastdeploy, sys\nprint(fastdeploy.SamplingParams.__module__, own_site)\n",
        "child.py",
    )
    script = write(
        tmp_path,
        "import os, subprocess, sys\n"
        f"os.environ['PYTHONPATH'] += os.pathsep + {str(hidden)!r}\n"
        "subprocess.run([sys.executable, 'child.py'], check=True)\n"
        "subprocess.run([sys.executable, '-S', '-c', 'print(1)'], check=True)\n",
    )
    done = subprocess.run(
        [sys.executable, "-m", "headrace.compat", str(script)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (
        "headrace.compat.fastdeploy.engine.sampling_params 5\n1\n",
        "",
    )


def test_install_in_a_program_reaches_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace import compat

    for before in ("", f"{os.pathsep}a{os.pathsep}"):
        monkeypatch.setenv("PYTHONPATH", before)
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        compat.install()
        compat.install()
        folder, *others = os.environ["PYTHONPATH"].split(os.pathsep)
        assert (Path(folder) / "sitecustomize.py").is_file()
        assert others == ["a"] * (
            before != ""
        )  # no empty entry, which would mean the folder we are in


def test_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.compat"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m headrace.compat script.py")
