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
    assert machine.run("build", "a")[0] == 0
    code, text = machine.run("b", "c")
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
    code, text = machine.run("build", "a", "b", "c")
    assert code == 1
    table = (machine.folder / "out/table.txt").read_text()
    assert "| 50 u " in table
    assert "| 3.5 u " in table
    for name in ("build ", "bench-linears", "bench-8b"):
        assert f"FAILED   {name}" in table
    assert "ok       cost-models" in table
    assert "went wrong" in (machine.folder / "out/logs.txt").read_text()
    assert "not built, or not installed" in text


def test_no_step_begins_when_time_is_up(machine: Machine) -> None:
    code, text = machine.run("a", "b", HEADRACE_GPU_SECONDS="0")
    assert (code, text.count("no time was left") > 10) == (0, True)
    assert "no time was left for: tests/gpu/run.sh a b\n" in text
    code, _ = machine.run("a", HEADRACE_GPU_SECONDS="0", HEADRACE_REQUIRE_CUDA="1")
    assert code == 1


def test_stages_are_chosen_by_name(machine: Machine) -> None:
    code, text = machine.run("a")
    assert code == 0
    assert "exchanges" in text
    assert "parity" not in text
    code, text = machine.run("test")
    assert code == 1
    assert "there is no stage test" in text


def test_without_a_gpu(machine: Machine) -> None:
    machine.put("bin/nvidia-smi", "exit 9")
    assert machine.run()[0] == 0
    code, text = machine.run(HEADRACE_REQUIRE_CUDA="1")
    assert code == 1
    assert "SKIPPED: this machine has no usable NVIDIA GPU" in text


GTEST = """case "$*" in
  *filter=Any.Bad) echo '[  FAILED  ] Any.Bad (1 ms)'; exit 1;;
  *filter=Any.Ends) echo '[  PASSED  ] 1 test.';;
  *:Any.Ends) echo '[ RUN      ] Any.Last'; echo '[       OK ] Any.Last (1 ms)';;
  *) printf '[ RUN      ] %s\n[  FAILED  ] %s\n' Any.Bad 'Any.Bad, where GetParam() = 1 (1 ms)'
     echo '[ RUN      ] Any.Ends'; exit 134;;
esac"""


def test_only_what_failed_runs_again(machine: Machine) -> None:
    machine.put("build/tests/cuda/host/gpu_parity_test", GTEST)
    code, text = machine.run("b")
    assert code == 1
    steps = [line[:29].split() for line in text.split("in all\n\n")[1].splitlines()]
    own = [(step[1], step[0]) for step in steps if step[1:] and step[1].startswith("parity")]
    assert own == [
        ("parity", "FAILED"),
        ("parity-2", "ok"),  # what was behind the test that took the process with it
        ("parity-Any-Bad", "FAILED"),
        ("parity-Any-Ends", "ok"),
    ]
    code, text = machine.run("b", HEADRACE_GPU_AGAIN_SECONDS="0")
    assert "SKIPPED  again " in text
    assert "2 failed tests are left" in text


def test_what_ran_out_of_time_does_not_run_again(machine: Machine) -> None:
    slow = "echo '[ RUN      ] Any.Slow'; sleep 60"
    machine.put("build/tests/cuda/host/gpu_parity_test", slow)
    code, text = machine.run("b", HEADRACE_GPU_SECONDS="7")
    assert code == 1
    assert "TIMEOUT  parity" in text
    assert "time ran out in Any.Slow" in text
    assert "parity-" not in text


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
    code, text = machine.run("c")
    assert (code, "not measured: kernels differ in bits" in text) == (1, True)
    code, text = machine.run("c", HEADRACE_GPU_SECONDS="0")
    assert "kernels differ" in text  # what was found before


def test_two_gpus_are_held_against_the_cpu(machine: Machine) -> None:
    machine.put("build/tests/cuda/host/gpu_engine_test", 'echo "$*"')
    code, text = machine.run("ranks", "more")
    assert code == 0
    for name, tests in (("two-gpus", "*TwoGpus*"), ("engine", "-*TwoGpus*")):
        (row,) = [line for line in text.splitlines() if line.startswith(f"ok       {name} ")][:1]
        assert row.endswith(f" --gtest_filter={tests}")
    machine.put("build/tests/cuda/host/gpu_engine_test", "echo 'tokens differ'; exit 1")
    code, text = machine.run("ranks")
    assert code == 1
    assert "FAILED   two-gpus " in text
    assert "ok       bench-ranks " in text


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
