"""Vision towers with integer weights: rounded at load, packed, and as tools write them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "tests" / "golden"))
sys.path.append(str(ROOT / "examples" / "tiny_vision"))

import quantized

from headrace import LLM, SamplingParams, packed
from questions import PICTURES, load_heldout, messages_of

EXAMPLE = ROOT / "examples" / "tiny_vision"
CHECKPOINT = EXAMPLE / "checkpoint"
Answers = list[tuple[list[int], str]]
Pack = Callable[[str, Any], dict[str, Any]]


def answers(model: Path, **options: Any) -> Answers:
    """Tokens and log-probabilities of replies about the example's files."""
    items = load_heldout(EXAMPLE / "heldout.jsonl")
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
    with LLM(str(model), enable_logprob=True, **options) as llm:
        shown = [messages_of(items[number]) for number in PICTURES.values()]
        outputs = llm.chat(shown, params, use_tqdm=False)
    return [(out.outputs.token_ids, repr(out.outputs.logprobs)) for out in outputs]


@pytest.mark.parametrize("name", ["wint8", "wint4"])
def test_the_same_bits_from_packed_weights_and_in_other_company(name: str, tmp_path: Path) -> None:
    want = answers(CHECKPOINT, quantization=name)
    assert want != answers(CHECKPOINT)
    one = {"num_threads": 1, "max_num_seqs": 1, "max_num_batched_tokens": 24}
    assert answers(CHECKPOINT, quantization=name, max_encoder_tokens=4, **one) == want
    file, folder = tmp_path / "m.headrace", tmp_path / "folder"
    for target in (file, folder):
        packed.pack(CHECKPOINT, target, quantization=name)
    assert answers(CHECKPOINT, packed_weights=file) == want
    assert answers(CHECKPOINT, packed_weights=file, packed_copy=True) == want
    assert answers(folder) == want


def test_what_a_tower_takes(tmp_path: Path) -> None:
    taken = {}
    packed.pack(CHECKPOINT, tmp_path / "m.headrace", quantization="wint8")
    file = {"packed_weights": tmp_path / "m.headrace"}
    settings: dict[str, dict[str, Any]] = {
        "bf16": {},
        "wint8": {"quantization": "wint8"},
        "wint4": {"quantization": "wint4"},
        "packed": file,
    }
    for name, options in settings.items():
        with LLM(str(CHECKPOINT), max_model_len=64, **options) as llm:
            taken[name] = llm.model_info.vision_weight_bytes
    # Rows of 96 inputs are filled up to 128; a patch embedding and biases stay.
    assert taken["wint8"] < 0.6 * taken["bf16"]
    assert taken["wint4"] == taken["packed"] == taken["wint8"]


def is_tower_linear(name: str, values: Any) -> bool:
    tower = name.startswith(("vision_model.blocks.", "model.resampler_model."))
    return tower and values.ndim == 2


def write_model(folder: Path, config: dict[str, Any] | None, change: Pack) -> Path:
    """A copy of the model in which change(name, weight) stands for each linear of the tower."""
    folder.mkdir()
    for file in CHECKPOINT.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    settings = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    settings |= {"torch_dtype": "float32"} | ({"quantization_config": config} if config else {})
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    tensors: dict[str, Any] = {}
    for name, values in quantized.read(CHECKPOINT).items():
        if is_tower_linear(name, values):
            tensors |= change(name.removesuffix(".weight"), values)
        else:
            tensors[name] = values
    quantized.write(folder, tensors)
    return folder


def ct_config(form: str, strategy: str, **weights: Any) -> dict[str, Any]:
    scheme = {"num_bits": 8, "type": "int", "strategy": strategy, "symmetric": True} | weights
    group = {"targets": ["Linear"], "weights": scheme}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
    }


GPTQ = {"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": False, "desc_act": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
FORMS: dict[str, tuple[dict[str, Any], Pack, dict[str, Any]]] = {
    "gptq": (GPTQ, quantized.gptq, {"bits": 8, "group": 32, "symmetric": False, "shuffle": 3}),
    "awq": (AWQ, quantized.awq, {"bits": 4, "group": 32, "symmetric": False}),
    "packed": (
        ct_config("pack-quantized", "group", group_size=32),
        quantized.packed,
        {"bits": 8, "group": 32, "symmetric": True},
    ),
    "int8": (
        ct_config("int-quantized", "channel"),
        quantized.int8,
        {"bits": 8, "group": -1, "symmetric": True},
    ),
}


# The trained model is sure enough of these answers for the rounding of activations not to matter.
@pytest.mark.parametrize("name", FORMS)
def test_towers_as_tools_write_them(name: str, tmp_path: Path) -> None:
    config, pack, how = FORMS[name]
    codes = write_model(
        tmp_path / "codes", config, lambda stem, w: pack(stem, quantized.quantize(w, **how))
    )
    plain = write_model(
        tmp_path / "plain",
        None,
        lambda stem, w: {f"{stem}.weight": quantized.dequantized(quantized.quantize(w, **how))},
    )
    got = answers(codes)
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in answers(plain)]
    packed.pack(codes, tmp_path / "m.headrace")
    assert answers(codes, packed_weights=tmp_path / "m.headrace") == got


def test_what_tools_left_out_becomes_int8(tmp_path: Path) -> None:
    """Where `quantization` says the checkpoint's own bits."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}

    def pack(stem: str, weight: Any) -> dict[str, Any]:
        if "blocks.0." not in stem:
            return {f"{stem}.weight": weight}
        return quantized.gptq(stem, quantized.quantize(weight, 4, 32, symmetric=True))

    folder = write_model(tmp_path / "codes", config, pack)
    taken = []
    for quantization in (None, "wint4"):
        with LLM(str(folder), max_model_len=64, quantization=quantization) as llm:
            taken.append(llm.model_info.vision_weight_bytes)
    assert taken[1] < 0.5 * taken[0]
