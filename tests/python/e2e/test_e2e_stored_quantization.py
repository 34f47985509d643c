"""Checkpoints that come quantized: GPTQ, AWQ, compressed-tensors."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import headrace
from headrace import LLM, SamplingParams, packed

np = pytest.importorskip("numpy")
sys.path.insert(0, str(ROOT / "tests" / "golden"))
try:
    import quantized
finally:
    sys.path.remove(str(ROOT / "tests" / "golden"))

SOURCE = ROOT / "examples" / "tiny_model" / "checkpoint"
PROMPTS = ["What is 17 + 25?", "Count from 3 to 9.", "Who are you?", "法国的首都是哪里？"]
Answers = list[tuple[list[int], str]]


def gptq_config(bits: int, group: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False} | more


def awq_config(group: int, **more: Any) -> dict[str, Any]:
    settings = {"bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return {"quant_method": "awq"} | settings | more


def ct_config(
    bits: int, group: int, form: str = "pack-quantized", **weights: Any
) -> dict[str, Any]:
    size: dict[str, Any] = {"strategy": "group", "group_size": group}
    if group == -1:
        size = {"strategy": "channel", "group_size": None}
    scheme = {"num_bits": bits, "type": "int", "symmetric": True} | size | weights
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": scheme}},
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    config: dict[str, Any]
    pack: Callable[[str, Any], dict[str, Any]]
    bits: int
    group: int
    symmetric: bool = False
    shuffle: int | None = None

    def quantize(self, weight: Any) -> Any:
        return quantized.quantize(
            weight, self.bits, self.group, symmetric=self.symmetric, shuffle=self.shuffle
        )


def gptq_v2(name: str, layer: Any) -> dict[str, Any]:
    return dict(quantized.gptq(name, layer, v2=True))


def zero_bytes(name: str, layer: Any) -> dict[str, Any]:
    return dict(quantized.packed(name, layer, zero_bytes=True))


V2 = {"checkpoint_format": "gptq_v2"}
LEFT_OUT: dict[str, Any] = {"-:^lm_head$": {}}  # which is stored as it is, in all of these
FORMS = {
    "gptq4_g128_sym": Form(gptq_config(4, 128), quantized.gptq, 4, 128, symmetric=True),
    "gptq4_g32": Form(gptq_config(4, 32, sym=False, dynamic=LEFT_OUT), quantized.gptq, 4, 32),
    "gptq4_g64_v2": Form(gptq_config(4, 64, **V2), gptq_v2, 4, 64),
    "gptq8_channel": Form(gptq_config(8, -1), quantized.gptq, 8, -1, symmetric=True),
    "gptq8_g64_v2": Form(gptq_config(8, 64, **V2), gptq_v2, 8, 64),
    "gptq4_act_order": Form(gptq_config(4, 64, desc_act=True), quantized.gptq, 4, 64, shuffle=5),
    "awq_g64": Form(awq_config(64), quantized.awq, 4, 64),
    "awq_g128": Form(awq_config(128, version="GEMM"), quantized.awq, 4, 128),
    "ct4_g32_sym": Form(ct_config(4, 32), quantized.packed, 4, 32, symmetric=True),
    "ct4_g64": Form(ct_config(4, 64, symmetric=False), quantized.packed, 4, 64),
    "ct4_g64_zero_bytes": Form(ct_config(4, 64, symmetric=False), zero_bytes, 4, 64),
    "ct4_act_order": Form(ct_config(4, 64, actorder="group"), quantized.packed, 4, 64, shuffle=6),
    "ct8_channel": Form(ct_config(8, -1), quantized.packed, 8, -1, symmetric=True),
    "ct8_int": Form(ct_config(8, -1, "int-quantized"), quantized.int8, 8, -1, symmetric=True),
    "ct8_int_g64": Form(ct_config(8, 64, "int-quantized"), quantized.int8, 8, 64),
}
# The same codes in other clothes.
TWINS = [
    ("gptq4_g64_v2", "awq_g64"),
    ("gptq4_g64_v2", "ct4_g64"),
    ("ct4_g64", "ct4_g64_zero_bytes"),
    ("gptq8_channel", "ct8_channel"),
    ("gptq8_g64_v2", "ct8_int_g64"),
]


def make(form: Form, folder: Path, config: dict[str, Any] | None = None) -> Path:
    quantized.make(
        SOURCE, folder, config or form.config, lambda name, w: form.pack(name, form.quantize(w))
    )
    return folder


def make_plain(form: Form, folder: Path) -> Path:
    quantized.make(
        SOURCE,
        folder,
        None,
        lambda name, w: {f"{name}.weight": quantized.dequantized(form.quantize(w))},
    )
    return folder


def answers(folder: Path, prompts: list[str], **more: Any) -> Answers:
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
    with LLM(str(folder), enable_logprob=True, max_model_len=256, **more) as llm:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        outputs = llm.chat(chats, params, use_tqdm=False)
        return [(out.outputs.token_ids, repr(out.outputs.logprobs)) for out in outputs]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root, made = tmp_path_factory.mktemp("stored"), {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = make(FORMS[name], root / name)
        return made[name]

    return folder


# The trained model is sure enough of these answers for the rounding of activations not to matter.
@pytest.mark.parametrize("name", FORMS)
def test_the_tokens_of_the_dequantized_model(
    name: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    plain = answers(make_plain(FORMS[name], tmp_path / "plain"), PROMPTS)
    stored = answers(folders(name), PROMPTS)
    assert [tokens for tokens, _ in stored] == [tokens for tokens, _ in plain]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_the_same_codes_are_the_same_model(
    one: str, other: str, folders: Callable[[str], Path]
) -> None:
    assert answers(folders(one), PROMPTS) == answers(folders(other), PROMPTS)


@pytest.mark.parametrize("name", ["gptq4_act_order", "awq_g128", "ct8_int_g64", "gptq8_channel"])
def test_the_same_tokens_alone_and_together(name: str, folders: Callable[[str], Path]) -> None:
    folder = folders(name)
    want = answers(folder, PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        assert answers(folder, [prompt], num_threads=1) == want[i : i + 1]
    assert answers(folder, PROMPTS, max_num_batched_tokens=7, max_num_seqs=3) == want
    again = PROMPTS + PROMPTS  # the second half hits the first's prefixes
    assert answers(folder, again, max_num_seqs=1) == want + want


@pytest.mark.parametrize("name", ["gptq4_act_order", "awq_g64", "ct8_int"])
def test_packed_files(name: str, folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder, file = folders(name), tmp_path / "m.headrace"
    packed.pack(folder, file)
    assert answers(folder, PROMPTS, packed_weights=file) == answers(folder, PROMPTS)


@pytest.mark.parametrize("name", ["gptq4_act_order", "gptq4_g32", "awq_g64", "ct8_int"])
def test_the_cache(
    name: str, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    folder, want = folders(name), answers(folders(name), PROMPTS)
    assert answers(folder, PROMPTS, packed_weights="auto") == want
    first_start(folder, tmp_path)
    assert answers(folder, PROMPTS, packed_weights="auto") == want
    with LLM(str(folder), max_model_len=64, packed_weights="auto") as llm:
        assert Path(llm.model_info.packed_weights).parent == tmp_path
        assert llm.model_info.mapped_weight_bytes == llm.model_info.weight_bytes


def first_start(folder: Path, cache: Path) -> None:
    """Until the file is there."""
    with LLM(str(folder), max_model_len=64, packed_weights="auto"):
        for _ in range(3000):
            if list(cache.glob("*.headrace")):
                return
            time.sleep(0.02)
    raise AssertionError(f"no file in {cache}")


def test_what_info_says(folders: Callable[[str], Path]) -> None:
    with LLM(str(folders("awq_g64")), max_model_len=64) as llm:
        assert llm.model_info.quantization == "awq"
        as_stored = llm.model_info.weight_bytes
    with LLM(str(folders("awq_g64")), max_model_len=64, quantization="wint4") as llm:
        assert llm.model_info.weight_bytes < as_stored  # the head became int8
    for form, name in (("awq_g64", "wint8"), ("gptq8_channel", "fp8")):
        with pytest.raises(headrace.HeadraceError, match="comes quantized"):
            LLM(str(folders(form)), quantization=name)


def test_modules_left_out(tmp_path: Path) -> None:
    form = FORMS["gptq4_g64_v2"]

    def left_out(name: str) -> bool:
        return ".layers.2." in name or name.endswith("down_proj")

    def pack(name: str, weight: Any) -> dict[str, Any]:
        return (
            {f"{name}.weight": weight} if left_out(name) else form.pack(name, form.quantize(weight))
        )

    def plain(name: str, weight: Any) -> dict[str, Any]:
        whole = weight if left_out(name) else quantized.dequantized(form.quantize(weight))
        return {f"{name}.weight": whole}

    quantized.make(SOURCE, tmp_path / "q", form.config, pack)
    quantized.make(SOURCE, tmp_path / "plain", None, plain)
    got, want = answers(tmp_path / "q", PROMPTS), answers(tmp_path / "plain", PROMPTS)
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in want]


def test_a_bias_of_zeros_is_none(folders: Callable[[str], Path], tmp_path: Path) -> None:
    form = FORMS["gptq4_g32"]

    def pack(value: float) -> Callable[[str, Any], dict[str, Any]]:
        return lambda name, w: (
            form.pack(name, form.quantize(w))
            | {f"{name}.bias": np.full(w.shape[0], value, np.float16)}
        )

    quantized.make(SOURCE, tmp_path / "zeros", form.config, pack(0.0))
    assert answers(tmp_path / "zeros", PROMPTS) == answers(folders("gptq4_g32"), PROMPTS)
    quantized.make(SOURCE, tmp_path / "ones", form.config, pack(1.0))
    with pytest.raises(headrace.HeadraceError, match=r"_proj\.bias"):
        LLM(str(tmp_path / "ones"))


BAD_CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    ("gptq4_g32", gptq_config(3, 32), "bits.*is 3.*4 and 8 bits"),
    ("gptq4_g32", gptq_config(4, 48), "group_size.*is 48"),
    ("gptq4_g32", gptq_config(4, 32, checkpoint_format="marlin"), "checkpoint_format"),
    ("gptq4_g32", gptq_config(4, 32, dynamic={"+:.*": {"bits": 8}}), "dynamic"),
    ("gptq4_g32", gptq_config(4, 32, rotation="hadamard"), "rotation.*remove it"),
    ("gptq4_g32", {"quant_method": "bitsandbytes"}, "quant_method.*gptq.*awq.*compressed-tensors"),
    ("awq_g64", awq_config(64, version="gemv"), "version"),
    ("awq_g64", awq_config(64, bits=8), "bits"),
    ("ct4_g64", ct_config(4, 64, "marlin-24"), "format"),
    ("ct4_g64", ct_config(4, 64, type="float"), "type"),
    ("ct4_g64", ct_config(4, 64, strategy="tensor"), "strategy"),
    ("gptq4_g32", gptq_config(4, 64), "qzeros has the shape"),
    ("gptq4_g32", gptq_config(8, 32), "qweight has the shape"),
]


@pytest.mark.parametrize(("name", "config", "message"), BAD_CONFIGS)
def test_configs_that_are_refused(
    name: str, config: dict[str, Any], message: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for path in folders(name).iterdir():
        (folder / path.name).symlink_to(path)
    whole = json.loads((folder / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(whole))
    with pytest.raises(headrace.HeadraceError, match=message):
        LLM(str(folder))


def damaged(kind: str, change: Callable[[Any], Any]) -> Callable[[str, Any], dict[str, Any]]:
    form = FORMS["gptq4_act_order"]

    def pack(name: str, weight: Any) -> dict[str, Any]:
        out = form.pack(name, form.quantize(weight))
        if name.endswith("layers.1.self_attn.v_proj"):
            out[f"{name}.{kind}"] = change(out[f"{name}.{kind}"].copy())
        return out

    return pack


def with_first(value: int) -> Callable[[Any], Any]:
    def change(values: Any) -> Any:
        values[0] = value
        return values

    return change


BAD_TENSORS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("g_idx", with_first(99), "names group 99 of 3"),
    ("g_idx", with_first(-1), "names group -1"),
    ("g_idx", lambda g: np.zeros_like(g), "64 inputs into each group"),
    ("g_idx", lambda g: g[::-1], "g_idx differs"),
    ("g_idx", lambda g: g[:-1], r"g_idx has the shape \[191\]"),
    ("qweight", lambda w: w[:-1], "qweight has the shape"),
    ("qweight", lambda w: w.astype(np.int64), "qweight is stored as int64"),
    ("qzeros", lambda w: w[:, :-1], "qzeros has the shape"),
    ("scales", lambda w: w.astype(np.float32), "scales' types differ"),
    ("scales", lambda w: w.T, "scales has the shape"),
]


@pytest.mark.parametrize(("kind", "change", "message"), BAD_TENSORS)
def test_tensors_that_are_refused(
    kind: str, change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    quantized.make(SOURCE, tmp_path / "m", FORMS["gptq4_act_order"].config, damaged(kind, change))
    with pytest.raises(headrace.HeadraceError, match=message):
        LLM(str(tmp_path / "m"))


def test_a_zero_point_that_is_off_by_one_shows(tmp_path: Path) -> None:
    form = FORMS["gptq4_g32"]
    plain = answers(make_plain(form, tmp_path / "plain"), PROMPTS)
    wrong = make(form, tmp_path / "wrong", gptq_config(4, 32, checkpoint_format="gptq_v2"))
    assert [tokens for tokens, _ in answers(wrong, PROMPTS)] != [tokens for tokens, _ in plain]
