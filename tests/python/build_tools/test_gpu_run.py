"""tests/gpu/run.sh with programs that only pretend: what is left when some of them fail."""

import json
import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

STUBS = {
    "nvidia-smi": 'case "$*" in *compute_cap*) echo 9.0;; *) echo H100, 580;; esac',
    "nvcc": "echo release 13.0",
    "cmake": "echo configured",
    "ninja": "echo built",
    "compute-sanitizer": 'shift 4; exec "$@"',
    "ncu": "echo profiled",
}
ROWS = 'while [ "$1" != --rows ]; do shift; done; echo \'{}\' >> "$2"'
PROGRAMS = {
    "tests/cuda/gpu_kernels_test": "echo PASSED",
    "tests/cuda/host/gpu_parity_test": "echo PASSED",
    "tests/cuda/host/gpu_quantized_test": "echo PASSED",
    "tests/cuda/host/gpu_moe_test": "echo PASSED",
    "tests/cuda/host/gpu_engine_test": "echo PASSED",
    "tests/cuda/host/gpu_golden_test": "echo PASSED",
    "tests/cuda/host/gpu_tower_test": "echo PASSED",
    "benchmarks/cuda/gpu_kernel_bench": "echo measured",
    "benchmarks/cuda/gpu_engine_bench": "echo measured",
    "benchmarks/cuda/startup_bench": "echo measured",
}


# The second of the two commands that fill the table, as run.sh's first lines have it.
HEAD = (ROOT / "tests/gpu/run.sh").read_text().splitlines()[:6]
(REST,) = [line.split("run.sh")[1].split() for line in HEAD if "run.sh serving" in line]


def rows(*numbers: tuple[str, float]) -> str:
    lines = [
        json.dumps({"number": number, "work": "", "measured": value, "unit": "u", "limit": 0,
                    "limit_name": "", "share": 0})
        for number, value in numbers
    ]  # fmt: skip
    return "\n".join(ROWS.replace("{}", line) for line in lines)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, body in STUBS.items():
            self.put(f"bin/{name}", body)
        for name, body in PROGRAMS.items():
            self.put(f"build/{name}", body)

    def put(self, name: str, body: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def run(self, *stages: str, **environment: str) -> tuple[int, str]:
        own = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "OUT": str(self.folder / "out"),
            "HEADRACE_GPU_BUILD": str(self.folder / "build"),
            "HEADRACE_COMMIT": "abc",
        }
        done = subprocess.run(
            [ROOT / "tests/gpu/run.sh", *stages],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | own | environment,
        )
        return done.returncode, done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_table_comes_last_and_in_a_file(machine: Machine) -> None:
    machine.put("build/benchmarks/cuda/startup_bench", rows(("startup-8b", 3.5)))
    machine.put("build/benchmarks/cuda/gpu_kernel_bench", rows(("sampling", 61)))
    assert machine.run()[0] == 0
    code, text = machine.run(*REST)
    assert code == 0
    saved = (machine.folder / "out/table.txt").read_text()
    assert text.endswith(saved)
    for part in ("H100, 580", "nvcc release 13.0", "commit abc", "| 3.5 u "):
        assert part in saved
    assert saved.count("| MISSED |") == 1
    assert saved.count("| met |") == 1
    assert saved.count("not measured") == 20
    assert len(list((machine.folder / "out").iterdir())) <= 8


def test_a_step_that_fails_costs_no_other_rows(machine: Machine) -> None:
    fails = rows(("sampling", 50)) + "\necho 'went wrong'; exit 3"
    machine.put("build/benchmarks/cuda/gpu_kernel_bench", fails)
    (machine.folder / "build/benchmarks/cuda/gpu_engine_bench").unlink()
    machine.put("build/benchmarks/cuda/startup_bench", rows(("startup-8b", 3.5)))
    machine.put("bin/ninja", "exit 1")
    code, text = machine.run("build", "kernels", "decodes", *REST)
    assert code == 1
    table = (machine.folder / "out/table.txt").read_text()
    assert "| 50 u " in table
    assert "| 3.5 u " in table
    for name in ("build ", "bench-linears", "bench-8b"):
        assert f"FAILED   {name}" in table
    assert "ok       goldens" in table
    assert "went wrong" in (machine.folder / "out/logs.txt").read_text()
    assert "not built, or not installed" in text


def test_no_step_begins_when_time_is_up(machine: Machine) -> None:
    code, text = machine.run(HEADRACE_GPU_SECONDS="0")
    assert (code, text.count("no time was left") > 10) == (0, True)
    assert "no time was left for: tests/gpu/run.sh build tests kernels decodes\n" in text
    code, _ = machine.run(HEADRACE_GPU_SECONDS="0", HEADRACE_REQUIRE_CUDA="1")
    assert code == 1


def test_a_step_is_stopped_at_the_end_of_all_time(machine: Machine) -> None:
    machine.put("build/tests/cuda/gpu_kernels_test", "sleep 60")
    code, text = machine.run("tests", HEADRACE_GPU_SECONDS="7")
    assert code == 1
    assert "TIMEOUT  kernels" in text


def test_stages_are_chosen_by_name(machine: Machine) -> None:
    code, text = machine.run("tests")
    assert code == 0
    assert "parity" in text
    assert "goldens" not in text
    code, text = machine.run("test")
    assert code == 1
    assert "there is no stage test" in text


def test_without_a_gpu(machine: Machine) -> None:
    machine.put("bin/nvidia-smi", "exit 9")
    assert machine.run()[0] == 0
    code, text = machine.run(HEADRACE_REQUIRE_CUDA="1")
    assert code == 1
    assert "SKIPPED: this machine has no usable NVIDIA GPU" in text


def test_tests_run_apart_where_their_program_fails(machine: Machine) -> None:
    program = """case "$*" in
  *list_tests*) printf 'Any.\\n  Bad\\nAll/Any.  # Type\\n  Good/0  # GetParam() = 1\\n';;
  *filter=All/Any.Good/0) echo PASSED;;
  *) echo 'an illegal memory access'; exit 1;;
esac"""
    machine.put("build/tests/cuda/gpu_kernels_test", program)
    code, text = machine.run("tests")
    assert code == 1
    assert "FAILED   kernels-Any-Bad " in text
    assert "ok       kernels-All-Any-Good-0 " in text
    assert "ok       parity " in text


def test_numbers_with_targets_fit_into_a_call() -> None:
    script = (ROOT / "tests/gpu/run.sh").read_text()
    seconds = dict.fromkeys(("kernels", "decodes", "serving", "experts", "ranks", "cost"), 0)
    for stage in seconds:
        body = script.split(f"run_{stage}() {{")[1].split("\n}\n")[0]
        for line in body.splitlines():
            words = line.split()
            if words and words[0] == "kernel_bench":
                seconds[stage] += int(words[1]) * len(words[2:])
            elif words and words[0] in ("engine_bench", "step"):
                loop = 2 if "$quantization" in line else 1
                seconds[stage] += loop * int(words[2])
    assert min(seconds.values()) > 0
    most = int(script.split("HEADRACE_GPU_SECONDS:-")[1].split("}")[0])
    assert seconds["kernels"] + seconds["decodes"] <= most
    assert sum(seconds[stage] for stage in REST if stage in seconds) <= most


def test_the_sanitizer_gets_tests_that_there_are(machine: Machine) -> None:
    code, text = machine.run("sanitize")
    assert code == 0
    for name in ("memcheck-kernels", "racecheck-kernels", "synccheck-ops", "memcheck-exchanges"):
        assert f"ok       {name} " in text
    sources = "".join(file.read_text() for file in (ROOT / "tests/cuda").rglob("*_test.cc"))
    tests = [
        f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_P)?\((\w+), (\w+)\)", sources)
    ]
    script = (ROOT / "tests/gpu/run.sh").read_text()
    body = script.split("run_sanitize() {")[1].split("\n}\n")[0]
    patterns = [one for found in re.findall(r"'(\*[^']*)'", body) for one in found.split(":")]
    assert len(patterns) > 8
    for pattern in patterns:
        # Without what a parameter adds.
        plain = pattern.split("/")[0].removesuffix("*bfloat16*") + "*"
        assert any(fnmatch(test, plain) for test in tests), pattern


def test_the_row_of_the_same_bits_is_a_tests_verdict(machine: Machine) -> None:
    machine.put("build/tests/cuda/host/gpu_parity_test", "exit 1")
    code, text = machine.run("cost")
    assert (code, "not measured: kernels differ in bits" in text) == (1, True)
    code, text = machine.run("cost", HEADRACE_GPU_SECONDS="0")
    assert "kernels differ" in text  # what was found before


def test_two_gpus_are_held_against_the_cpu(machine: Machine) -> None:
    machine.put("build/tests/cuda/host/gpu_engine_test", 'echo "$*"')
    code, text = machine.run("ranks", "more")
    assert code == 0
    for name, tests in (("two-gpus", "*TwoGpus*"), ("engine", "-*TwoGpus*")):
        (row,) = [line for line in text.splitlines() if line.startswith(f"ok       {name} ")][:1]
        assert row.endswith(f"--gtest_brief=1 --gtest_filter={tests}")
    machine.put("build/tests/cuda/host/gpu_engine_test", "echo 'tokens differ'; exit 1")
    code, text = machine.run("ranks")
    assert code == 1
    assert "FAILED   two-gpus " in text
    assert "ok       bench-ranks " in text


def test_serving_costs_no_other_row(machine: Machine) -> None:
    slow = 'case "$*" in *"part serving"*) exit 1;; esac\n' + rows(("decode-8b", 2000))
    machine.put("build/benchmarks/cuda/gpu_engine_bench", slow)
    code, text = machine.run("serving", "decodes")
    assert code == 1
    assert "FAILED   serving-8b" in text
    assert "ok       bench-8b" in text
    assert "| 2000 u " in text


def test_nvcc_is_found_where_toolkits_are(machine: Machine) -> None:
    (machine.folder / "bin/nvcc").rename(machine.folder / "nvcc")
    bare = f"{machine.folder / 'bin'}:/usr/bin:/bin"
    none = {"PATH": bare, "HEADRACE_CUDA_HOME": str(machine.folder / "none")}
    assert "SKIPPED  build" in machine.run("build", **none)[1]
    for version in ("12.9", "13.0"):
        machine.put(f"usr/cuda-{version}/bin/nvcc", f"echo release {version}")
    machine.put("bin/cmake", "nvcc")
    found = {"PATH": bare, "HEADRACE_CUDA_HOME": str(machine.folder / "usr")}
    code, text = machine.run("build", **found)
    assert code == 0
    assert "release 13.0" in text


def test_rows_of_several_calls_make_one_table(machine: Machine) -> None:
    files = []
    for number, value in (("sampling", 61), ("sampling", 50), ("startup-8b", 3.5)):
        files.append(machine.folder / f"{len(files)}.jsonl")
        machine.put("row", rows((number, value)).split("; done; ")[1])
        subprocess.run([machine.folder / "row", "--rows", files[-1]], check=True)
    command = ["python3", str(ROOT / "benchmarks/cuda/table.py"), *map(str, files)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| 50 u " in table
    assert "| 3.5 u " in table
    assert "| 61 u " not in table
