"""Packed files: what they load, what they refuse, and the command that writes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import packed
from headrace.cli import main

_core = pytest.importorskip("headrace._core")
LLM, SamplingParams, HeadraceError = headrace.LLM, headrace.SamplingParams, headrace.HeadraceError
SMALL = {"max_model_len": 256, "max_num_seqs": 4}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(headrace.shipped_model(), folder)
    return folder


def answers(folder: Path, **more: Any) -> list[tuple[list[int], Any]]:
    params = SamplingParams(temperature=0.0, max_tokens=12, logprobs=2)
    with LLM(str(folder), enable_logprob=True, **SMALL, **more) as llm:
        outputs = llm.generate(["Once upon a time", "2 + 2 ="], params, use_tqdm=False)
        return [(out.outputs.token_ids, repr(out.outputs.logprobs)) for out in outputs]


def test_the_same_answers_mapped_and_copied(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"
    report = packed.pack(model, file)
    assert report is not None
    assert (report.file, report.file_bytes) == (str(file), file.stat().st_size)
    want = answers(model)
    assert answers(model, packed_weights=file) == want
    assert answers(model, packed_weights=str(file), packed_copy=True) == want


def test_a_folder_of_its_own(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    packed.pack(model, out)
    assert not list(out.glob("*.safetensors"))
    want = answers(model)
    shutil.rmtree(model)
    assert answers(out) == want
    with LLM(str(out), **SMALL) as llm:
        assert llm.model_info.mapped_weight_bytes == llm.model_info.weight_bytes > 0


def test_a_folder_that_holds_weights_is_left_alone(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    before = sorted(other.iterdir())
    with pytest.raises(FileExistsError, match="holds the weights"):
        packed.pack(model, other)
    assert sorted(other.iterdir()) == before


def test_current_and_stale(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"
    assert not packed.is_current(model, file)
    assert packed.pack(model, file, skip_if_current=True) is not None
    assert packed.pack(model, file, skip_if_current=True) is None
    assert packed.is_current(model, file)
    other = "float16" if _core.model_family(str(model)).dtype != "float16" else "bfloat16"
    assert not packed.is_current(model, file, dtype=other)
    assert packed.pack(model, file, dtype=other, skip_if_current=True) is not None
    assert packed.pack(model, file, skip_if_current=True) is not None, "of the other dtype"

    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert not packed.is_current(model, file)
    with pytest.raises(HeadraceError, match="stale") as caught:
        LLM(str(model), packed_weights=file, **SMALL)
    assert caught.value.code == "invalid_state"
    assert packed.pack(model, file, skip_if_current=True) is not None
    assert packed.is_current(model, file)


def test_current_for_a_number_of_devices(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"
    packed.pack(model, file, tensor_parallel_size=2)
    assert packed.is_current(model, file, tensor_parallel_size=2)
    assert not packed.is_current(model, file)
    facts = packed.describe(file)
    assert (facts["tensor_parallel_size"], facts["enable_expert_parallel"]) == ("2", "0")


def test_a_changed_config_is_named(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.headrace"
    packed.pack(model, file)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rope_theta": 4321.0}))
    with pytest.raises(HeadraceError, match=r"rope_theta \(4321"):
        packed.check(model, file)


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "m.headrace")
    assert main(["pack", str(model), file, "--check"]) == 1
    assert "cannot open" in capsys.readouterr().err
    assert main(["pack", str(model), file]) == 0
    assert "MiB" in capsys.readouterr().out
    assert main(["pack", str(model), file, "--skip-if-current"]) == 0
    assert "is current" in capsys.readouterr().out
    assert main(["pack", str(model), file, "--check"]) == 0
    assert "fits" in capsys.readouterr().out
    args = ["-m", str(model), "--packed-weights", file, "--max-tokens", "3", "Once"]
    assert main(["generate", *args]) == 0


def test_the_cache(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("HEADRACE_CACHE", str(cache))
    want = answers(model)
    with LLM(str(model), packed_weights="auto", **SMALL) as llm:
        assert llm.model_info.packed_weights == ""
        deadline = time.monotonic() + 60
        while not list(cache.glob("*.headrace")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with LLM(str(model), packed_weights="auto", **SMALL) as llm:
        assert Path(llm.model_info.packed_weights).parent == cache
    assert answers(model, packed_weights="auto") == want
    shutil.rmtree(cache)
    args = ["-m", str(model), "--packed-weights", "auto", "--max-tokens", "3", "Once"]
    assert main(["generate", *args]) == 0


CHILD = """
import sys
from headrace import _core

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024

engine = _core.Engine()
before = status("RssAnon")
options = _core.ModelOptions(path=sys.argv[1], packed_weights=sys.argv[2], max_model_len=64,
                             max_num_seqs=1)
engine.install_model("m", options)
info = engine.model_info("m")
held = status("RssAnon") - before - info.kv_cache_bytes - info.scratch_bytes
mapped = status("RssFile")
engine.release_model("m")
print([held, mapped, status("RssFile"), info.weight_bytes])
"""


def test_mapped_weights_take_no_memory_of_their_own(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
    import make_checkpoint as maker

    shape = dict(maker.SHAPES["smoke"], vocab_size=16384, hidden_size=512, num_hidden_layers=4)
    maker.SHAPES["packed-test"] = shape
    folder = maker.write("packed-test", tmp_path / "big")
    file = tmp_path / "big.headrace"
    packed.pack(folder, file)
    out = subprocess.run(
        [sys.executable, "-c", CHILD, folder, file], capture_output=True, text=True, check=True
    )
    held, mapped, left, weights = json.loads(out.stdout)
    assert weights > 16 << 20
    assert held < 8 << 20, "anonymous memory"
    assert mapped > weights, "all pages were read for their hashes"
    assert mapped - left > 0.9 * weights, "released"
