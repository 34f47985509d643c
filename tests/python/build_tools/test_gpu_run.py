"""tests/gpu/run.sh with programs that only pretend: what is left when some of them fail."""

import json
import os
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = ("run.sh", "steps.sh", "pack.sh")

STUBS = {
    "nvidia-smi": 'case "$*" in *compute_cap*) echo 9.0;; *) echo H100, 580;; esac',
    "nvcc": "echo release 13.0",
    "cmake": "echo configured",
    "ninja": "echo built",
    "compute-sanitizer": 'shift 4; exec "$@"',
    "ncu": """case "$*" in
  *query-metrics*) printf '%s  Counter\\n' dram__bytes smsp__inst_executed;;
  *) echo 'profiled: 16 launches'; echo 'linear-o-1  9 us'
     while [ "$1" != --log-file ]; do shift; done
     printf '"ID","dram__bytes.sum"\\n"","byte"\\n"0","3,200"\\n' >"$2";;
esac""",
}
PASSES = "echo '[  PASSED  ] 1 test.'"
TESTS = {
    "kernels": "tests/cuda/gpu_kernels_test",
    "parity": "tests/cuda/host/gpu_parity_test",
    "quantized": "tests/cuda/host/gpu_quantized_test",
    "experts": "tests/cuda/host/gpu_moe_test",
    "engine": "tests/cuda/host/gpu_engine_test",
    "goldens": "tests/cuda/host/gpu_golden_test",
    "towers": "tests/cuda/host/gpu_tower_test",
}
BENCHES = {
    name: f"benchmarks/cuda/{name}"
    for name in ("gpu_kernel_bench", "gpu_engine_bench", "gpu_float8_probe", "startup_bench")
}
# One test fails, one takes the process with it, and one is behind that.
FAILS = """case "$*" in
  *filter=A/Linear.Bad/0) echo '[  FAILED  ] A/Linear.Bad/0 (1 ms)'; exit 1;;
  *filter=Any.Ends) echo '[  PASSED  ] 1 test.';;
  *:Any.Ends) echo '[ RUN      ] Any.Last'; echo '[       OK ] Any.Last (1 ms)';;
  *filter=-*) echo '[ RUN      ] A/Linear.Bad/0'
     echo '[  FAILED  ] A/Linear.Bad/0, where GetParam() = 1 (1 ms)'
     echo '[ RUN      ] Any.Ends'; exit 134;;
esac"""
SLOW = """case "$*" in *filter=*[A-Z]*) echo '[  FAILED  ] Any.Fails (1 ms)'; exit 1;; esac
echo '[ RUN      ] Any.Fails'; echo '[  FAILED  ] Any.Fails (1 ms)'
echo '[ RUN      ] Any.Slow'; sleep 60"""


def rows(*numbers: tuple[str, float]) -> str:
    """A benchmark that has these."""
    lines = [
        json.dumps({"number": number, "work": "", "measured": value, "unit": "u", "limit": 0,
                    "limit_name": "", "share": 0})
        for number, value in numbers
    ]  # fmt: skip
    text = "\n".join(f"echo '{line}' >>\"$2\"" for line in lines)
    return (
        f'while [ $# -gt 0 ] && [ "$1" != --rows ]; do shift; done; [ $# -gt 0 ] || exit 0\n{text}'
    )


def put(file: Path, body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, body in STUBS.items():
            put(folder / "bin" / name, body)
        for name in TESTS.values():
            put(folder / "build" / name, PASSES)
        for name in BENCHES.values():
            put(folder / "build" / name, "echo measured")

    def program(self, name: str, body: str) -> None:
        put(self.folder / "build" / {**TESTS, **BENCHES}[name], body)

    def run(self, *stages: str, root: Path = ROOT, **environment: str) -> tuple[int, str]:
        own = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "OUT": str(self.folder / "out"),
            "HEADRACE_COMMIT": "abc",
        }
        if root == ROOT:
            own["HEADRACE_GPU_BUILD"] = str(self.folder / "build")
        done = subprocess.run(
            [root / "tests/gpu/run.sh", *stages],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | own | environment,
        )
        return done.returncode, done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Call:
    """What a call left behind."""

    def __init__(self, machine: Machine, *stages: str, **environment: str) -> None:
        self.code, self.text = machine.run(*stages, **environment)
        self.out = machine.folder / "out"
        self.table = (self.out / "table.txt").read_text()
        lines = self.table.split(" s in all\n\n")[1].split("\n\n")[0].splitlines()
        # In order: a test that fails runs twice under two names.
        self.steps = [(name, result) for result, name in (line.split()[:2] for line in lines)]

    def result(self, name: str) -> str:
        (found,) = [result for step, result in self.steps if step == name]
        return found

    def rows(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Everything but for other machines' stages, where much goes wrong."""
    machine = Machine(tmp_path_factory.mktemp("troubled"))
    machine.program("kernels", FAILS)
    machine.program("parity", SLOW)
    machine.program("gpu_kernel_bench", rows(("sampling", 61), ("linear-few", 1.2)) + "\nexit 3")
    machine.program("startup_bench", rows(("startup-8b", 1.25)))
    (machine.folder / "build" / BENCHES["gpu_engine_bench"]).unlink()
    put(machine.folder / "bin/ninja", "echo 'went wrong'; exit 1")
    return Call(machine, "build", "a", "b", "c", HEADRACE_GPU_STEP_SECONDS="1")


def test_the_table_comes_last_and_in_a_file(troubled: Call) -> None:
    assert troubled.text.endswith(troubled.table)
    for part in ("H100, 580", "nvcc release 13.0", "commit abc", "| 1.25 u ", "| 61 u "):
        assert part in troubled.table
    assert troubled.table.count("| MISSED |") == 1
    assert len(list(troubled.out.iterdir())) <= 8


def test_a_step_that_fails_costs_no_other_its_rows(troubled: Call) -> None:
    assert troubled.code == 1
    for name in ("build", "bench-linears", "bench-8b", "cost-models"):
        assert troubled.result(name) == "FAILED"
    assert (troubled.result("quantized"), troubled.result("startup")) == ("ok", "ok")
    assert "went wrong" in (troubled.out / "logs.txt").read_text()
    assert "not built, or not installed" in troubled.text


def test_only_what_failed_runs_again_and_at_the_end(troubled: Call) -> None:
    own = [step for step in troubled.steps if step[0].startswith(("kernels", "parity"))]
    assert own == [
        ("kernels", "FAILED"),
        ("kernels-2", "ok"),  # what was behind the test that took the process with it
        ("parity", "TIMEOUT"),
        ("kernels-A-Linear-Bad-0", "FAILED"),
        ("kernels-Any-Ends", "ok"),
        ("parity-Any-Fails", "FAILED"),  # and not Any.Slow, which only ran out of time
    ]
    assert troubled.steps[-3:] == own[-3:]
    assert "failed tests:\nA/Linear.Bad/0\nAny.Ends\nAny.Fails\n" in troubled.table
    assert "time ran out in Any.Slow" in troubled.text


def test_rows_of_kernels_whose_tests_failed_are_marked(troubled: Call) -> None:
    assert [row["failed_test"] for row in troubled.rows() if "failed_test" in row] == [
        "A/Linear.Bad/0", "Any.Ends", "Any.Fails"
    ]  # fmt: skip
    (marked,) = [line for line in troubled.table.splitlines() if line.endswith("Bad/0 |")]
    assert "products of 1 to 64 rows" in marked


def test_a_test_that_failed_is_run_by_the_sanitizer(troubled: Call) -> None:
    assert troubled.result("memcheck-kernels") == "FAILED"
    assert "memcheck" not in " ".join(name for name, _ in troubled.steps[-3:])


def test_what_ncu_counts_is_of_one_launch(troubled: Call) -> None:
    (row,) = [row for row in troubled.rows() if row.get("number") == "counts-linear-o-1"][:1]
    assert row["work"] == "a launch: 200 bytes of memory"


def test_the_row_of_the_same_bits_is_a_tests_verdict(troubled: Call) -> None:
    assert "not measured: kernels differ in bits" in troubled.table


def test_no_step_begins_when_time_is_up(machine: Machine) -> None:
    code, text = machine.run("a", "b", HEADRACE_GPU_SECONDS="0")
    assert (code, text.count("no time was left") > 10) == (0, True)
    assert "no time was left for: tests/gpu/run.sh a b\n" in text
    code, _ = machine.run("ranks", HEADRACE_GPU_SECONDS="0", HEADRACE_REQUIRE_CUDA="1")
    assert code == 1


def test_failed_tests_have_a_limit_for_all(machine: Machine) -> None:
    machine.program("kernels", "echo '[ RUN      ] Any.Ends'; exit 134")
    call = Call(machine, "a", HEADRACE_GPU_AGAIN_SECONDS="0")
    assert "10 failed tests are left" in call.table
    assert call.result("bench-1b") == "ok"
    assert [name for name, _ in call.steps if "kernels" in name] == [
        "kernels", "kernels-2", "kernels-3", "kernels-4", "kernels-5"
    ]  # fmt: skip


def test_without_a_gpu_and_without_such_a_stage(machine: Machine) -> None:
    code, text = machine.run("test")
    assert (code, "there is no stage test" in text) == (1, True)
    put(machine.folder / "bin/nvidia-smi", "exit 9")
    assert machine.run()[0] == 0
    code, text = machine.run(HEADRACE_REQUIRE_CUDA="1")
    assert (code, "SKIPPED: this machine has no usable NVIDIA GPU" in text) == (1, True)


def tree(folder: Path) -> Path:
    """As much of the sources as packing and running takes."""
    for name in (*(f"tests/gpu/{file}" for file in FILES), "benchmarks/cuda/table.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def make_pack(machine: Machine, built: Path) -> Path:
    """The file that pack.sh makes in `built` of programs that want a golden case of there."""
    tree(built)
    (built / "examples/tiny_model/checkpoint").mkdir(parents=True)
    put(built / "benchmarks/cuda/counts.py", "")
    put(built / "tests/golden/case", "")
    build = built / "build/gpu"
    shutil.copytree(machine.folder / "build", build)
    put(build / TESTS["kernels"], f"ls {built}/tests/golden/case && {PASSES}")
    for name in ("build.ninja", "CMakeCache.txt", "libheadrace_cuda.so", "libheadrace.so.0.1"):
        (build / name).touch()
    paths = "\n".join([*TESTS.values(), *BENCHES.values()])
    put(machine.folder / "bin/ninja", f"cat <<END\ngpu_tests:\n{paths}\nEND")
    put(machine.folder / "bin/strip", 'cp "$3" "$2"')
    environment = os.environ | {"PATH": f"{machine.folder / 'bin'}:{os.environ['PATH']}"}
    subprocess.run([built / "tests/gpu/pack.sh"], check=True, env=environment, capture_output=True)
    return build / "pack.tar.xz"


def test_a_pack_runs_where_nothing_was_built(machine: Machine) -> None:
    built, there = machine.folder / "built", tree(machine.folder / "there")
    pack = shutil.move(make_pack(machine, built), machine.folder / "pack.tar.xz")
    environment = {"HEADRACE_GPU_PACK": str(pack), "HEADRACE_COMMIT": ""}
    code, text = machine.run("a", root=there, **environment)
    assert (code, "make that a link" in text) == (1, True)  # the path is another tree's
    shutil.rmtree(built)
    code, text = machine.run("a", root=there, **environment)
    assert code == 0
    assert "ok       kernels " in text
    assert "commit unknown" in text  # of where it was packed
    assert not built.is_symlink()
    # Without the sources: what is in the pack is enough.
    alone = machine.folder / "alone"
    alone.mkdir()
    subprocess.run(["tar", "-xf", pack, "-C", alone], check=True)
    code, text = machine.run("a", root=alone)
    assert (code, "ok       kernels " in text) == (0, True)


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


def test_two_gpus_are_held_against_the_cpu(machine: Machine) -> None:
    machine.program("engine", 'echo "$*"; exit 1')
    code, text = machine.run("ranks")
    assert code == 1
    (row,) = [line for line in text.splitlines() if line.startswith("FAILED   two-gpus ")][:1]
    assert row.endswith(" --gtest_filter=*TwoGpus*")
    assert "ok       bench-ranks " in text


def test_nvcc_is_found_where_toolkits_are(machine: Machine) -> None:
    (machine.folder / "bin/nvcc").rename(machine.folder / "nvcc")
    bare = f"{machine.folder / 'bin'}:/usr/bin:/bin"
    none = {"PATH": bare, "HEADRACE_CUDA_HOME": str(machine.folder / "none")}
    assert "SKIPPED  build" in machine.run("build", **none)[1]
    for version in ("12.9", "13.0"):
        put(machine.folder / f"usr/cuda-{version}/bin/nvcc", f"echo release {version}")
    put(machine.folder / "bin/cmake", "nvcc")
    found = {"PATH": bare, "HEADRACE_CUDA_HOME": str(machine.folder / "usr")}
    code, text = machine.run("build", **found)
    assert code == 0
    assert "release 13.0" in text
