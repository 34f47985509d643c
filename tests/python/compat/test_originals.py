"""The originals' own tests and example programs, run through headrace.compat.

HEADRACE_DASHINFER_SOURCE names a checkout of DashInfer 2.x, HEADRACE_FASTDEPLOY_SOURCE one of
FastDeploy 2.x; without them these tests are skipped. Nothing of the checkouts is changed: what runs
is a copy that names the CPU where there is no GPU, and ids that the model which comes with Headrace
has. Packages that are not installed are stood in for (stand_ins/README.md)."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace import shipped_model

HERE = Path(__file__).parent
STAND_INS = ("modelscope", "transformers", "torch")


class Program(NamedTuple):
    path: str
    needs: tuple[str, ...] = ()  # packages that nothing stands in for
    expect: str = ""  # in what it prints
    arguments: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # files of its folder that it imports


BENCHMARK = (
    *("--device_type", "CPU", "--engine_max_length", "256", "--engine_max_batch", "4"),
    *("--test_qps", "50", "--test_sample_size", "12", "--test_max_output", "16"),
    *("--test_random_input", "--prefix_cache_rate_list", "0.5"),
)
DASHINFER = [
    Program(
        "examples/benchmark/benchmark_throughput.py",
        ("pandas", "tabulate", "matplotlib"),
        "Report and Detail have been written",
        BENCHMARK,
        ("PromptLoader.py", "InspectPrompt.py"),
    ),
    Program("tests/python/gpu/test_runtime_config.py"),
    Program("tests/python/gpu/test_di_model_config.py", ("ruamel",)),
    Program("tests/python/gpu/test_11_qwen2_json.py"),
    Program("tests/python/x86/test_11_qwen2_json.py"),
    Program("examples/python/0_basic/cpu/basic_example_qwen_v20.py", expect="output token:"),
    Program("examples/python/0_basic/cpu/basic_example_qwen_v25.py", expect="output token:"),
    Program("examples/python/0_basic/cpu/basic_example_llama3.py", expect="output token:"),
    Program("examples/python/0_basic/cuda/basic_example_qwen_v20.py", expect="output token:"),
    Program("examples/python/0_basic/cuda/basic_example_qwen_v25.py", expect="output token:"),
    Program(
        "examples/python/1_performance/cpu/performance_test_qwen_v25.py", expect="batch_size: 8"
    ),
    Program("examples/python/1_performance/cpu/performance_test_llma3.py", expect="batch_size: 8"),
    Program(
        "examples/python/1_performance/cuda/performance_test_qwen_v25.py", expect="batch_size: 8"
    ),
]
# What is changed in a copy, as far as it is there.
SETTINGS = [
    (r"TargetDevice\.CUDA", "TargetDevice.CPU"),
    (r"device_list\s*=\s*\[0,\s*1\]", "device_list=[0]"),
    (r"randint\(low=1, high=\d+", "randint(low=3, high=2000"),
    (r"max_length\(10240\)", "max_length(4096)"),
    (r'"max_length": 10240', '"max_length": 1024'),
    (r"json_str = json\.loads\(request\.output_text\)", "pass"),  # it babbles to max_length
    (r"(num_cached_tokens, )64\)", r"\g<1>128)"),  # its tokenizer makes more of the prefix
    (r"weakref\.proxy\(llm\)", "llm"),  # there, its threads keep it alive
]


def checkout(variable: str) -> Path:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} names no checkout")
    return Path(folder)


def environment(folder: Path) -> dict[str, str]:
    missing = [name for name in STAND_INS if importlib.util.find_spec(name) is None]
    paths = [str(HERE / "stand_ins" / name) for name in missing]
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*paths, *([before] if before else [])])
    return {**os.environ, "PYTHONPATH": path, "MODEL_PATH": str(folder)}


def run(folder: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.compat", str(script), *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def copied(source: Path, folder: Path) -> Path:
    text = source.read_text(encoding="utf-8")
    for pattern, value in SETTINGS:
        text = re.sub(pattern, value, text)
    copy = folder / source.name
    copy.write_text(text, encoding="utf-8")
    return copy


@pytest.mark.parametrize("program", DASHINFER, ids=lambda program: program.path)
def test_dashinfer(program: Program, tmp_path: Path) -> None:
    source = checkout("HEADRACE_DASHINFER_SOURCE") / program.path
    if not source.is_file():
        pytest.skip(f"the checkout has no {program.path}")
    for name in program.needs:
        pytest.importorskip(name)
    (tmp_path / "work" / "here").mkdir(parents=True)  # some write to ../../
    for name in program.beside:
        copied(source.with_name(name), tmp_path)
    done = run(tmp_path / "work" / "here", copied(source, tmp_path), *program.arguments)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert program.expect in done.stdout
    assert "[Error]" not in done.stdout


class Suite(NamedTuple):
    path: str
    left_out: tuple[str, ...] = ()  # docs/fastdeploy.md has a line for each reason


_V1 = "TestSamplingParamsVerification::test_"
FASTDEPLOY = [
    Suite("tests/engine/test_request_output.py"),
    Suite("tests/engine/test_sampling_params_determinism.py"),
    Suite(
        "tests/engine/test_sampling_params.py",
        left_out=(  # FD_USE_GET_SAVE_OUTPUT_V1 is not read
            _V1 + "combined_logprobs_and_prompt_logprobs",
            _V1 + "environment_variable_handling",
            _V1 + "error_message_formatting",
            _V1 + "logprobs_boundary_values",
            _V1 + "logprobs_greater_than_20_with_v1_disabled",
            _V1 + "logprobs_invalid_less_than_minus_one",
            _V1 + "logprobs_invalid_less_than_zero",
            _V1 + "logprobs_with_other_parameters",
            _V1 + "post_init_calls_verify_args",
            _V1 + "prompt_logprobs_invalid_less_than_minus_one",
        ),
    ),
    Suite("tests/entrypoints/test_generation.py"),
    Suite(
        "tests/entrypoints/test_chat.py",
        left_out=(
            "TestChat::test_chat_with_tools",  # replaces a method of the data_processor
            "TestChat::test_validate_tools",  # a method that is not there
        ),
    ),
]
PYTEST = """
import sys
from headrace import compat
compat.install()
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("suite", FASTDEPLOY, ids=lambda suite: suite.path)
def test_fastdeploy(suite: Suite, tmp_path: Path) -> None:
    source = checkout("HEADRACE_FASTDEPLOY_SOURCE") / suite.path
    if not source.is_file():
        pytest.skip(f"the checkout has no {suite.path}")
    (tmp_path / "ERNIE-4.5-0.3B-Paddle").symlink_to(shipped_model())
    copied(source, tmp_path)
    left_out = [
        part for name in suite.left_out for part in ("--deselect", f"{source.name}::{name}")
    ]
    options = ["-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, "--rootdir", "."]
    ports = {"FD_ENGINE_QUEUE_PORT": "9001", "FD_CACHE_QUEUE_PORT": "9002"}
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, *options, *left_out, source.name],
        cwd=tmp_path,
        env={**environment(tmp_path), **ports},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    summary = done.stdout.splitlines()[-1]
    assert f"{len(suite.left_out)} deselected" in summary or not suite.left_out
    assert "skipped" not in summary
