"""benchmarks/compare: what engines are asked for on the CPU and on a GPU, without any of them."""

import importlib
import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks/compare"
OWN = (
    "compare", "common", "floors", "setup", "make_checkpoint", "vision_checkpoint",
    "gpt_oss_checkpoint", "worker",
)  # fmt: skip
ENGINES = ("engine_headrace", "engine_llama_cpp", "engine_transformers")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in (*OWN, *ENGINES):
        sys.modules.pop(name, None)


def asked(device: str, weights: str = "bf16"):
    return importlib.import_module("setup").Setup("model", weights, 2, 300, 8, device)


def compare(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", *arguments])
    importlib.import_module("compare").main()


@pytest.mark.parametrize(("device", "budget"), [("cpu", 512), ("cuda", 2048)])
def test_headrace(device: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("engine_headrace")
    llm = MagicMock()
    monkeypatch.setattr(module, "LLM", llm)
    module.Engine(asked(device))
    (model,), named = llm.call_args
    assert model == "model"
    assert named["device"] == device
    assert named["max_num_batched_tokens"] == budget
    assert named["max_model_len"] == 300
    assert named["max_num_seqs"] == 8


def fake_llama_cpp(monkeypatch: pytest.MonkeyPatch, with_gpu: bool) -> ModuleType:
    fake = MagicMock()
    fake.llama_log_callback = lambda function: function
    fake.llama_supports_gpu_offload.return_value = with_gpu
    fake.llama_model_default_params.return_value = SimpleNamespace()
    fake.llama_context_default_params.return_value = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "llama_cpp", fake)
    return fake


@pytest.mark.parametrize(("device", "layers"), [("cpu", 0), ("cuda", 1 << 16)])
def test_llama_cpp(device: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_llama_cpp(monkeypatch, with_gpu=True)
    importlib.import_module("engine_llama_cpp").Engine(asked(device))
    assert fake.llama_model_load_from_file.call_args[0][1].n_gpu_layers == layers
    params = fake.llama_init_from_model.call_args[0][1]
    assert params.n_ctx == 2400
    assert params.n_batch == params.n_ubatch == asked(device).budget


def test_llama_cpp_without_cuda_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_llama_cpp(monkeypatch, with_gpu=False)
    module = importlib.import_module("engine_llama_cpp")
    module.Engine(asked("cpu"))
    with pytest.raises(SystemExit, match="without CUDA"):
        module.Engine(asked("cuda"))


def fake_torch(monkeypatch: pytest.MonkeyPatch, with_gpu: bool) -> MagicMock:
    torch, transformers, streamers = MagicMock(), MagicMock(), MagicMock()
    torch.inference_mode = lambda: lambda function: function
    torch.cuda.is_available.return_value = with_gpu
    streamers.BaseStreamer = object
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "transformers.generation.streamers", streamers)
    return transformers.AutoModelForCausalLM.from_pretrained.return_value.to


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_transformers(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    to = fake_torch(monkeypatch, with_gpu=True)
    engine = importlib.import_module("engine_transformers").Engine(asked(device))
    engine.run([([1, 2], 3)], None)
    to.assert_called_once_with(device)
    named = to.return_value.generate.call_args[1]
    assert named["cache_implementation"] == "static"
    assert named["disable_compile"] == (device == "cpu")


def test_transformers_needs_a_gpu_and_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, with_gpu=False)
    module = importlib.import_module("engine_transformers")
    with pytest.raises(SystemExit, match="no CUDA device"):
        module.Engine(asked("cuda"))
    with pytest.raises(SystemExit, match="bf16 only"):
        module.Engine(asked("cpu", "int8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "int8"], "--weights int8 is for the CPU"),
        (["--python", "openvino=python3"], "openvino is compared on the CPU only"),
        (["--python", "headrace-packed=python3"], "headrace-packed is compared on the CPU only"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
    ],
)
def test_what_a_gpu_does_not_run_is_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        compare("--device", "cuda", *arguments, monkeypatch=monkeypatch)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "smoke"], "--work image needs a vision shape"),
        (["--shape", "smoke-vl", "--device", "cuda"], "and --device cpu"),
        (["--shape", "smoke-vl", "--python", "llama.cpp=python3"], "llama.cpp is not compared"),
    ],
)
def test_what_images_are_not_compared_with_is_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        compare("--work", "image", *arguments, monkeypatch=monkeypatch)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "parameters"), [("qwen2.5-vl-3b", 3_754_622_976), ("qwen3-vl-2b", 2_127_532_032)]
)
def test_vision_shapes_have_as_many_parameters_as_published(shape: str, parameters: int) -> None:
    make = importlib.import_module("make_checkpoint")
    tower = importlib.import_module("vision_checkpoint").tower_shapes(make.SHAPES[shape])
    shapes = make.tensor_shapes(make.SHAPES[shape]) | tower
    assert sum(math.prod(dims) for dims in shapes.values()) == parameters


def test_shapes_with_states_are_the_published_ones() -> None:
    make, common = (importlib.import_module(name) for name in ("make_checkpoint", "common"))
    config = make.SHAPES["qwen3.5-0.8b"]
    assert sum(map(math.prod, make.tensor_shapes(config).values())) == 752_393_024
    assert common.kv_bytes_per_token(config) == 6 * 2 * 2 * 256 * 2  # 6 of 24 layers
    assert common.state_bytes(config) == 18 * 4 * (16 * 128 * 128 + 3 * 6144)
    assert common.state_bytes(make.SHAPES["qwen3-0.6b"]) == 0


def test_gpt_oss_is_the_published_one(tmp_path: Path) -> None:
    gpt_oss, floors = (importlib.import_module(name) for name in ("gpt_oss_checkpoint", "floors"))
    config = gpt_oss.CONFIG_20B
    numbers = {
        name: math.prod(shape) * (2 if kind == "U8" else 1)
        for name, (kind, shape) in gpt_oss.stored(config).items()
        if not name.endswith("_scales")
    }
    assert sum(numbers.values()) == 20_914_757_184
    # A token meets 4 of a layer's 32 experts, of 4.25 bits a number.
    experts = 24 * 3 * 2880 * 2880
    rest = 24 * (2 * 2880 * 64 * (64 + 8) * 2 + 2880 * 32 * 4) + 2 * 201088 * 2880
    assert floors.weight_bytes(config, "bf16") == experts * 4 * 17 / 32 + rest
    small = config | {"num_hidden_layers": 1, "vocab_size": 64, "hidden_size": 32}
    file = tmp_path / "model.safetensors"
    gpt_oss.write_tensors(small | {"moe_intermediate_size": 32}, file, 0.02, 0)
    size = struct.unpack("<Q", file.read_bytes()[:8])[0]
    entries = json.loads(file.read_bytes()[8 : 8 + size])
    assert file.stat().st_size == 8 + size + max(e["data_offsets"][1] for e in entries.values())
    assert gpt_oss.published(small)["layer_types"] == ["sliding_attention"]


def test_operations_of_a_tower() -> None:
    make = importlib.import_module("make_checkpoint")
    vision = importlib.import_module("vision_checkpoint")
    config = make.SHAPES["smoke-vl"]  # 2 blocks of 64 columns and 96 between, one of them full
    assert vision.grid(config, 252, 140) == (18, 10)
    rows, cells = 180, 45
    block = 4 * 64 * 64 + 3 * 64 * 96
    matmul = rows * (3 * 2 * 14 * 14 * 64 + 2 * block) + cells * (256 * 256 + 256 * 128)
    windows = (8 * 8 + 8 * 8 + 2 * 2) * (8 * 8 + 2 * 2)
    pairs = rows**2 + windows
    assert vision.tower_operations(config, 252, 140) == 2 * matmul + 4 * pairs * 64


def test_limits_of_a_gpu(tmp_path: Path) -> None:
    common = importlib.import_module("common")
    program = tmp_path / "limits"
    program.write_text('#!/bin/sh\n[ "$3" = --limits ] && cat "$2"')
    program.chmod(0o755)
    (tmp_path / "found").write_text('{"read_gb_s": 3000, "bf16_gflop_s": 800000}')
    limits = common.measure_gpu_limits([str(program), "-x", str(tmp_path / "found")])
    assert (limits.read, limits.bf16) == (3e12, 8e14)
    with pytest.raises(SystemExit, match=r"tests/gpu/run\.sh build"):
        common.measure_gpu_limits([str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="limits: "):
        common.measure_gpu_limits([str(program)])


def test_the_table_names_the_device(tmp_path: Path) -> None:
    about = {"shape": "s", "work": "decode", "weights": "bf16", "engine": "e", "peak_mb": 1}
    file = tmp_path / "results"
    lines = [about | {"tok_s": 1}, about | {"tok_s": 2, "device": "cuda"}]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    command = [sys.executable, str(FOLDER / "compare.py"), "--results", str(file), "--table"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| s | decode | bf16 | e | 1.0 |" in text
    assert "| s on cuda | decode | bf16 | e | 2.0 |" in text


def test_the_table_has_the_time_to_the_first_token_behind_an_image(tmp_path: Path) -> None:
    row = {"shape": "s", "work": "image", "weights": "bf16", "engine": "e", "peak_mb": 1.5}
    file = tmp_path / "results"
    file.write_text(json.dumps(row | {"first_s": 2.345, "share": 0.5}))
    command = [sys.executable, str(FOLDER / "compare.py"), "--results", str(file), "--table"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| s | image | bf16 | e |  | 50% | 2.35 s |  | 2 MB |" in text
