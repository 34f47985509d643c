"""Loading: how far it is, what ends it, and numbers and paths that no model can have."""

from __future__ import annotations

import json
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import LLM, LoRARequest, SamplingParams, native, packed
from headrace.cli import main
from headrace.llm.requests.adapters import AdaptersBusy, LoraCache
from headrace.llm.requests.session import ModelSession, SessionLoader
from headrace.native import Engine, HeadraceError, ModelOptions

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SMALL: dict[str, Any] = {"max_model_len": 128, "max_num_seqs": 2}


def options(folder: str | Path) -> ModelOptions:
    return ModelOptions(path=str(folder), **SMALL)


# --- progress -----------------------------------------------------------------------------------


def test_progress_comes_on_the_callers_thread() -> None:
    reports: list[tuple[str, int, int, int]] = []
    with Engine() as engine:
        engine.install_model(
            "m",
            options(headrace.shipped_model()),
            progress=lambda stage, done, total: reports.append(
                (stage, done, total, threading.get_ident())
            ),
        )
    assert reports, "at least the end is told"
    assert {thread for *_, thread in reports} == {threading.get_ident()}
    order = ["opening", "checking", "weights", "reserving"]
    places = [order.index(stage) for stage, *_ in reports]
    assert places == sorted(places)
    assert all(0 <= done <= total for _, done, total, _ in reports)


def test_what_progress_raises_ends_the_load() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("enough")

    with Engine() as engine:
        with pytest.raises(RuntimeError, match="enough"):
            engine.install_model("m", options(headrace.shipped_model()), progress=fail)
        assert engine.models() == []
        engine.install_model("m", options(headrace.shipped_model()))
        engine.start_model("m")


def test_packing_tells_and_can_be_ended(tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"

    def fail(*_: object) -> None:
        raise RuntimeError("enough")

    stages = []
    packed.pack(headrace.shipped_model(), file, progress=lambda stage, *_: stages.append(stage))
    assert set(stages) <= {"opening", "weights"}
    with pytest.raises(RuntimeError, match="enough"):
        packed.pack(headrace.shipped_model(), file, overwrite=True, progress=fail)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


# --- Ctrl-C -------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, threading, time
import headrace
from headrace import LLM, Engine
from headrace.native import ModelOptions

def held():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

big, file = sys.argv[1:]
LLM(headrace.shipped_model(), max_model_len=64).close()
before = held()
engine = Engine()
caught = 0


def note(what):  # a callback of a weak reference was running: Python tells nobody else
    global caught
    caught += what.exc_type is KeyboardInterrupt


sys.unraisablehook = note
for delay in (0.0, 0.002, 0.01, 0.03, 0.06, 0.1, 0.2):
    timer = threading.Timer(delay, signal.raise_signal, [signal.SIGINT])
    try:
        timer.start()
        if file == "engine":
            engine.install_model("m", ModelOptions(path=big, max_model_len=64, max_num_seqs=1))
            time.sleep(delay + 1)
        else:
            LLM(big, max_model_len=64, max_num_seqs=1)
            time.sleep(delay + 1)
    except KeyboardInterrupt:
        caught += 1
    timer.join()
    if "m" in engine.models():
        engine.release_model("m")
    assert not [t for t in threading.enumerate() if t.name == "headrace-load"]
print(caught, held() - before < 24 << 20)
with LLM(big, max_model_len=64, max_num_seqs=1) as llm:
    print(llm.model_info.num_layers)
"""


@pytest.mark.parametrize("what", ["engine", "llm"])
def test_ctrl_c_ends_a_load_and_leaves_nothing(what: str, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
    import make_checkpoint as maker

    shape = dict(maker.SHAPES["smoke"], vocab_size=16384, hidden_size=512, num_hidden_layers=4)
    maker.SHAPES["load-test"] = shape
    folder = maker.write("load-test", tmp_path / "big")
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + INTERRUPTED
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), folder, what],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["7", "True", "4"], done.stdout + done.stderr


def test_an_interrupted_wait_still_ends_the_load(
    fake_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Python 3.11 an interrupted Thread.join marks the thread as ended."""
    ended = threading.Event()

    def load(self: ModelSession, progress: object = None) -> None:
        while not self.closed:
            time.sleep(0.01)
        time.sleep(0.2)  # memory is given back
        ended.set()
        raise HeadraceError("the load was cancelled.", "cancelled")

    monkeypatch.setattr(ModelSession, "load", load)
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with (
        pytest.raises(KeyboardInterrupt),
        SessionLoader("m", {"path": "somewhere"}) as loader,
    ):
        loader.session()
    assert ended.is_set()
    timer.join()


def test_closing_the_engine_ends_a_load() -> None:
    engine = Engine()
    begun = threading.Event()
    failures: list[BaseException] = []

    def load() -> None:
        try:
            for number in range(10_000):
                begun.set()
                engine.install_model(f"m{number}", options(headrace.shipped_model()))
                engine.release_model(f"m{number}")
        except HeadraceError as error:
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    begun.wait()
    time.sleep(0.05)
    engine.close()
    thread.join(60)
    assert not thread.is_alive()
    assert getattr(failures[0], "code", "") in ("cancelled", "invalid_state")


# --- numbers ------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(headrace.shipped_model(), tmp_path / "model"))


def set_numbers(folder: Path, name: str, bits: int, count: int = 1) -> None:
    """The second number of a bfloat16 tensor, and those behind it."""
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])[name]
    assert entry["dtype"] == "BF16"
    at = 8 + length + entry["data_offsets"][0] + 2
    data[at : at + 2 * count] = struct.pack("<H", bits) * count
    file.write_bytes(data)


@pytest.mark.parametrize("bits", [0x7FC0, 0x7F80, 0xFF80])
def test_weights_that_are_not_finite_are_refused_by_name(model: Path, bits: int) -> None:
    name = "model.norm.weight"
    set_numbers(model, name, bits)
    with pytest.raises(HeadraceError, match=f"tensor {name} holds") as caught:
        LLM(str(model), **SMALL)
    assert caught.value.code == "corrupt_file"
    with pytest.raises(HeadraceError, match=f"tensor {name} holds"):
        packed.pack(model, model.parent / "m.headrace")


def test_logits_that_are_not_finite_end_their_request(model: Path) -> None:
    set_numbers(model, "model.norm.weight", 0x7F7F, 32)  # the largest bfloat16
    with LLM(str(model), **SMALL) as llm:
        (output,) = llm.generate(["Hello"], SamplingParams(max_tokens=4), use_tqdm=False)
    assert output.error_code == 500
    assert "NaN or infinity" in (output.error_msg or "")
    with Engine() as engine:
        engine.install_model("m", options(model))
        engine.start_model("m")
        (end,) = list(engine.submit("m", [1, 2, 3]).results())
    assert (end.error_code, end.token_ids) == ("not_finite", [])


# --- paths --------------------------------------------------------------------------------------


def test_empty_paths_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(model)  # what "" would mean
    before = {path: path.stat().st_mtime_ns for path in model.rglob("*")}
    actions: list[Callable[[], Any]] = [
        lambda: LLM(""),
        lambda: LLM(str(model), tokenizer=""),
        lambda: LLM(str(model), packed_weights=""),
        lambda: LLM(str(model), chat_template=""),
        lambda: packed.pack(model, ""),
        lambda: packed.pack("", tmp_path / "m.headrace"),
        lambda: packed.check(model, ""),
        lambda: packed.copy_settings(model, ""),
        lambda: Engine().install_model("m", ""),
        lambda: native.describe_model(""),
    ]
    for action in actions:
        with pytest.raises((ValueError, HeadraceError)) as caught:
            action()
        assert "empty" in str(caught.value) or "chat template" in str(caught.value)
    for words in (["pack", str(model), ""], ["pack", str(model), "", "--check"], ["pack", "", "x"]):
        assert main(words) != 0
    assert main(["generate", "-m", "", "Hello"]) == 2
    assert "empty" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in model.rglob("*")} == before


def test_packing_overwrites_nothing_else(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.headrace"
    file.write_text("my notes")
    for more in ({}, {"skip_if_current": True}):
        with pytest.raises(FileExistsError, match=r"notes\.headrace.*--force"):
            packed.pack(model, file, **more)
    assert file.read_text() == "my notes"
    assert main(["pack", str(model), str(file)]) == 1
    assert main(["pack", str(model), str(file), "--force"]) == 0
    assert packed.is_current(model, file)
    assert packed.pack(model, file) is not None, "the same contents"
    with pytest.raises(FileExistsError):
        packed.pack(model, file, quantization="wint8")
    assert packed.pack(model, file, quantization="wint8", skip_if_current=True) is not None


def test_packing_into_a_folder_overwrites_nothing_else(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("{}")
    before = [path.name for path in out.iterdir()]
    with pytest.raises(FileExistsError, match=r"config\.json"):
        packed.pack(model, out)
    assert [path.name for path in out.iterdir()] == before
    assert (out / "config.json").read_text() == "{}"
    packed.pack(model, out, overwrite=True)
    assert packed.pack(model, out) is not None, "the same contents"
    LLM(str(out), **SMALL).close()


# --- adapters -----------------------------------------------------------------------------------


class SlowEngine:
    """Adapters are read at once, but for the one at "slow"."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.reading = threading.Event()

    def load_lora(self, model: str, name: str, path: str) -> None:
        if path == "slow":
            self.reading.set()
            assert self.go_on.wait(60)
            raise HeadraceError("hostile", "corrupt_file")

    def unload_lora(self, model: str, name: str) -> None: ...

    def loras(self, model: str) -> list[Any]:
        return []


def test_a_good_adapter_does_not_wait_for_a_hostile_one() -> None:
    engine: Any = SlowEngine()
    cache = LoraCache(engine, "m", 2)
    upper: Any = str.upper  # for what submits a request
    cache.changes.expect_end = lambda request: None  # type: ignore[method-assign]
    slow, good, third = (LoRARequest(name, 1, name) for name in ("slow", "good", "third"))
    failures: list[BaseException] = []

    def prepare_slow() -> None:
        try:
            cache.prepare(slow)
        except HeadraceError as error:
            failures.append(error)

    threads = [threading.Thread(target=prepare_slow) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert engine.reading.wait(60)
    cache.prepare(good)
    assert cache.submit(good, upper) == "GOOD (2)"
    cache.prepare(third)  # no place for it
    for absent in (slow, third):
        with pytest.raises(AdaptersBusy):
            cache.submit(absent, upper)
    engine.go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(failures) == 2, "both who wanted it learn why"
    cache.prepare(third)
    assert cache.submit(third, upper) == "THIRD (3)"


def test_the_loader_tells_its_progress(fake_engine: Any, toy_folder: Path) -> None:
    reports: list[Any] = []
    settings = ModelSession("m", {"path": str(toy_folder)})
    settings.load(lambda *report: reports.append(report))
    settings.close()
    assert reports == [("weights", 1, 1)]


# --- what is known without a load ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "numbers", "state"),
    [
        ("gemma4_text", {0: 2 * 2 * 64, 20: 2 * 2 * 32}, 0),  # two layers read what others keep
        ("deepseek_v2", {0: 3 * 48}, 0),  # a row for all heads, of 40 numbers
        ("qwen3_5", {0: 2 * 2 * 64}, 4 * 3 * (3 * 80 + 6 * 8 * 8)),
    ],
)
def test_info_knows_what_sequences_keep(
    case: str, numbers: dict[int, int], state: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = GOLDEN / case
    assert native.describe_model(str(folder)).kv_numbers == numbers
    assert main(["info", str(folder), "--json", "--max-model-len", "100"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kv_bytes_per_token"] == 2 * sum(numbers.values())
    kept = sum(each * (window or 100) for window, each in numbers.items())
    assert facts["kv_bytes_of_full_context"] == 2 * kept
    assert facts.get("state_slot_bytes", 0) == state
