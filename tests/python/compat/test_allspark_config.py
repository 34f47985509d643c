"""Configurations of headrace.allspark: builders, files, environment, quantization settings, ids."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.allspark import (
    AsCacheMode,
    ASGenerationConfigBuilder,
    AsModelConfig,
    AsModelRuntimeConfigBuilder,
    AsStatus,
    MultiMediaInfo,
    TargetDevice,
    get_quant_settings_cls,
)
from headrace.allspark.config.diconfig import DIConfigBuilder, parse_diconfig, read_diconfig
from headrace.allspark.generation_config import GenerationConfigAdapter
from headrace.allspark.loading import capabilities, environment
from headrace.allspark.quantization import KVCacheConfig, QuantizeConfig
from headrace.allspark.runtime_config import get_cache_mode_from_str
from headrace.allspark.serving.generation_fields import GenerationFields
from headrace.allspark.serving.lora import AdapterFolders, adapter_name
from headrace.allspark.serving.sampling import sampling_values
from headrace.allspark.serving.token_ids import TokenIdsError, read_rows


def test_the_runtime_builder() -> None:
    builder = AsModelRuntimeConfigBuilder().model_name("m").model_dir("/a", "b")
    builder.compute_unit("cuda", [0, 1], 3).max_length("64").max_batch("4").lora_max_rank("8")
    builder.lora_max_num(2).max_prefill_length(16).prefill_cache(False).prefix_cache_ttl(5)
    builder.kv_cache_mode(AsCacheMode.AsCacheQuantU4).kv_cache_span_size(32).set_span_init_size(9)
    built = builder.build()
    assert (built.model_path, built.weights_path) == ("/a/b.asgraph", "/a/b.asparam")
    assert (built.compute_unit, built.num_threads) == ("CUDA:0,1", 3)
    assert (built.engine_max_length, built.engine_max_batch) == (64, 4)
    assert (built.lora_max_rank, built.lora_max_num) == (8, 2)
    assert built.cache_mode == AsCacheMode.AsCacheQuantU4
    again = builder.build()
    assert again == built
    assert again is not built
    assert "\tengine_max_length: 64" in str(built)
    assert str(built).startswith("AsModelConfig:\n\tmodel_name: m\n")


def test_compute_units() -> None:
    def unit(*arguments: Any) -> str:
        return AsModelRuntimeConfigBuilder().compute_unit(*arguments).build().compute_unit

    assert unit(TargetDevice.CUDA) == unit("CUDA", []) == "CUDA:0"
    assert unit(TargetDevice.CPU, [3]) == "CPU:0"
    assert unit("cpu_numa", [0, 1]) == "CPU:0,1"
    numa = {"device": "cpu_numa"}
    assert capabilities.device("CPU", [0]) == {"device": "cpu"}
    assert capabilities.device("CPU", [0, 1]) == capabilities.device("CPU_NUMA", [0]) == numa
    assert capabilities.device("CUDA", [2]) == {"device": "cuda:2"}
    assert capabilities.device("CUDA", [0, 2]) == {"devices": ["cuda:0", "cuda:2"]}
    with pytest.raises(ValueError, match="not supported: tpu"):
        unit("tpu")
    with pytest.raises(AttributeError, match="must be a TargetDevice"):
        unit(5)
    parse = AsModelRuntimeConfigBuilder.parse_device_type
    assert parse("CUDA:0,1") == ("CUDA", [0, 1])
    for bad in ("CUDA", "TPU:0", "CPU:x"):
        with pytest.raises(ValueError):
            parse(bad)


def test_runtime_from_a_dict() -> None:
    unit = {"device_type": "CPU", "device_ids": [0], "compute_thread_in_device": 2}
    fields = {"model_name": "m", "compute_unit": unit, "engine_max_length": 9}
    with pytest.raises(KeyError, match="engine_max_batch"):
        AsModelRuntimeConfigBuilder().from_dict(fields)
    fields |= {
        "engine_max_batch": 3,
        "kv_cache_mode": "AsCacheQuantI8",
        "enable_prefix_cache": False,
        "engine_max_prefill_length": 4,
        "eviction_strategy": "Random",
    }
    built = AsModelRuntimeConfigBuilder().from_dict(fields).build()
    assert (built.engine_max_batch, built.engine_max_prefill_length) == (3, 4)
    assert built.cache_mode == AsCacheMode.AsCacheQuantI8
    assert not built.interrupts  # eviction_strategy isn't read from there
    with pytest.raises(ValueError, match="unknown cache mode 'x'"):
        get_cache_mode_from_str("x")


def test_model_config_fields() -> None:
    config = AsModelConfig()
    with pytest.raises(AttributeError, match="no field 'max_batch'"):
        config.max_batch = 3
    assert config == AsModelConfig()
    config.compute_unit = "CPU:0"
    assert config != AsModelConfig()
    assert not config.copy().interrupts
    config.eviction_strategy = config.eviction_strategy
    assert config.interrupts
    assert config.copy().interrupts


def test_the_generation_builder() -> None:
    hugging = SimpleNamespace(
        top_k=20, top_p=0.8, do_sample=False, early_stopping=False, repetition_penalty=1.05,
        length_penalty=None, temperature=0.7, min_length=0, no_repeat_ngram_size=0,
        eos_token_id=[7, 8], num_return_sequences=1, max_length=20,
    )  # fmt: skip
    built = ASGenerationConfigBuilder(hugging, seed=3).build()
    assert built == {
        "top_k": 20, "top_p": 0.8, "do_sample": True, "early_stopping": True,
        "repetition_penalty": 1.05, "presence_penalty": 0.0, "temperature": 0.7, "min_length": 0,
        "no_repeat_ngram_size": 0, "eos_token_id": 7, "stop_words_ids": [[7], [8]], "seed": 3,
    }  # fmt: skip
    assert "seed" in GenerationConfigAdapter.from_hf(hugging)
    with pytest.raises(ValueError, match="num_return_sequences"):
        ASGenerationConfigBuilder({"num_return_sequences": 2})
    assert ASGenerationConfigBuilder({"eos_token_id": 5}).build()["eos_token_id"] == 5
    info = MultiMediaInfo()
    assert ASGenerationConfigBuilder().with_mm_info(info).build()["mm_info"] is info
    assert ASGenerationConfigBuilder().log_probs(True, 4).build()["top_logprobs"] == 4


def test_builders_share_nothing() -> None:
    first, second = ASGenerationConfigBuilder(), ASGenerationConfigBuilder()
    first.update({"top_k": 7})
    assert "top_k" not in second.build()
    copy = first.build()
    copy["top_k"] = 9
    assert first.build()["top_k"] == 7


def mapped(**values: Any) -> dict[str, Any]:
    fields = GenerationFields(max_length=20)
    for name, value in values.items():
        setattr(fields, name, value)
    return sampling_values(fields, 8, [2], 100)


def test_mapping_to_the_engine() -> None:
    plain = mapped()
    assert (plain["max_tokens"], plain["min_tokens"]) == (12, 0)
    assert (plain["top_k"], plain["top_p"], plain["temperature"]) == (50, 0.99, 1.0)
    assert (plain["ignore_eos"], plain["stop_token_ids"]) == (True, [2])
    assert plain["stop_sequences_anywhere"] is True
    assert plain["seed"] is None
    assert "logprobs" not in plain
    assert mapped(top_p=0.9)["top_p"] == 0.9
    assert mapped(top_k=0)["top_k"] == 0
    assert mapped(temperature=1e-6)["temperature"] == 0.0
    assert mapped(min_length=11)["min_tokens"] == 3  # min_length counts the prompt, too
    assert mapped(min_length=99)["min_tokens"] == 12
    assert mapped(eos_token_id=7)["stop_token_ids"] == [2, 7]
    assert mapped(eos_token_id=0)["stop_token_ids"] == [2]  # not set: the model's own
    assert mapped(eos_token_id=100)["stop_token_ids"] == [2]  # beyond the vocabulary
    assert mapped(early_stopping=False)["stop_token_ids"] == []
    assert mapped(stop_words_ids=[[3, 4], []])["stop_sequences"] == [[3, 4]]
    assert mapped(suppress_repetition_in_generation=True)["penalize_output_only"] is True
    assert mapped(no_repeat_ngram_size=3)["no_repeat_ngram_size"] == 3
    assert mapped(seed=-1)["seed"] == (1 << 64) - 1
    assert mapped(logprobs=True, top_logprobs=2)["logprobs"] == 2


@pytest.mark.parametrize(
    ("values", "bound"),
    [
        ({}, None),
        ({"BFC_ALLOW_GROWTH": "OFF", "BFC_ALLOCATOR": "off"}, None),
        ({"BFC_MEM_RATIO": "0.5"}, (0.5, 600)),
        ({"BFC_LEFTOVER_MB": "7"}, (0.975, 7)),
        ({"BFC_MEM_RATIO": "1", "BFC_LEFTOVER_MB": "0"}, (1.0, 0)),
        ({"BFC_MEM_RATIO": "-1"}, (0.975, 600)),
    ],
)
def test_memory_from_the_environment(
    values: dict[str, str],
    bound: tuple[float, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in environment.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    options = environment.memory_options()
    if bound is None:
        assert options == {}
    else:
        ratio, leftover = bound
        assert options == {
            "total_memory_ratio": ratio,
            "memory_leftover_bytes": leftover * environment.MIB,
        }


@pytest.mark.parametrize(
    ("text", "device", "gibibytes"),
    [
        ("0.25", "cuda:0", 2.0),
        ("0.25", "cpu", None),
        ("0.25", "cpu_numa", None),
        ("0", "cuda:0", None),
        ("0.0", "cuda:0", None),
        ("", "cuda:0", None),
        ("2", "cuda:0", None),
    ],
)
def test_cpu_cache_ratio(
    text: str,
    device: str,
    gibibytes: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n")
    monkeypatch.setenv("CPU_CACHE_RATIO", text)
    expected = {} if gibibytes is None else {"swap_space": gibibytes}
    assert environment.swap_options(device, meminfo) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CPU_CACHE_RATIO", "-0.5"),
        ("CPU_CACHE_RATIO", "nan"),
        ("BFC_MEM_RATIO", "0"),
        ("BFC_MEM_RATIO", "1.5"),
        ("BFC_MEM_RATIO", "nan"),
        ("BFC_MEM_RATIO", "much"),
        ("BFC_LEFTOVER_MB", "-1"),
        ("BFC_LEFTOVER_MB", "1e3"),
        ("BFC_ALLOW_GROWTH", "maybe"),
        ("BFC_ALLOCATOR", "2"),
    ],
)
def test_bad_values_warn_and_default(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, text)
    assert environment.read(name) == environment.VARIABLES[name].default
    assert f"{name}={text!r} is ignored" in caplog.text


def test_quantization_settings() -> None:
    iq = get_quant_settings_cls("iq", {"weight_format": "uint4", "group_size": 64})
    assert (iq.get_name(), iq.get_weight_bits(), iq.get_group_num()) == ("instant_quant", 4, 64)
    mode = iq.to_as_quant_config("bfloat16").quantize_mode
    assert mode == QuantizeConfig.QuantMode.A16W4
    gptq = get_quant_settings_cls("gptq", {"bits": 8, "group_size": 128})
    assert gptq.to_as_quant_config("float16").quantize_mode == QuantizeConfig.QuantMode.A16W8
    bad: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("awq", {}, NotImplementedError, "'awq' is not known"),
        ("iq", {}, ValueError, "weight_format is missing"),
        ("iq", {"weight_format": "int3"}, ValueError, "must be one of"),
        ("iq", {"weight_format": "int8", "group_size": 7}, ValueError, "group_size must be"),
        (
            "iq",
            {"weight_format": "int8", "compute_method": "activate_quant", "group_size": 64},
            ValueError,
            "per channel only",
        ),
        ("gptq", {"bits": 3}, ValueError, "bits must be 4 or 8"),
        ("gptq", {"bits": 4, "desc_act": True}, NotImplementedError, "desc_act"),
    ]
    for method, values, error, message in bad:
        with pytest.raises(error, match=message):
            get_quant_settings_cls(method, values)
    assert KVCacheConfig("uint4").quantize_type == 1
    with pytest.raises(ValueError, match="'int2'"):
        KVCacheConfig("int2")
    with pytest.raises(NotImplementedError, match="no mode"):
        QuantizeConfig("float32", "int8")


def test_what_is_supported_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capabilities.kv_cache_dtype(AsCacheMode.AsCacheQuantI8) == "int8"
    assert capabilities.kv_cache_dtype(AsCacheMode.AsCacheQuantU4) == "uint4"
    with pytest.raises(RuntimeError, match="available: instant_quant weight_only int8"):
        capabilities.weight_quantization({"quant_method": "gptq", "weight_format": "int8"})
    monkeypatch.setitem(
        capabilities.KV_CACHE_MODES,  # type: ignore[arg-type]
        AsCacheMode.AsCacheQuantI8,
        None,
    )
    with pytest.raises(RuntimeError, match="available: AsCacheDefault, AsCacheQuantU4"):
        capabilities.kv_cache_dtype(AsCacheMode.AsCacheQuantI8)


def test_gptq_is_what_the_folder_holds(tmp_path: Path) -> None:
    settings = {"quant_method": "gptq", "weight_format": "int4"}
    with pytest.raises(RuntimeError, match="no quantization_config of it: use instant_quant"):
        capabilities.weight_quantization(settings, tmp_path)
    for stored in ({"quant_method": "awq"}, None, "gptq"):
        (tmp_path / "config.json").write_text(json.dumps({"quantization_config": stored}))
        with pytest.raises(RuntimeError, match="use instant_quant"):
            capabilities.weight_quantization(settings, tmp_path)
    stored = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert capabilities.weight_quantization(settings, tmp_path) == {}


def test_diconfig(tmp_path: Path) -> None:
    runtime = AsModelRuntimeConfigBuilder().model_name("m").compute_unit("CPU").build()
    builder = DIConfigBuilder().model({"vocab_size": 9, "other": 1}, hf_id="a/b")
    builder.runtime_config(runtime).generation_config({"top_k": 1, "seed": 5}).tokenizer("local")
    path = tmp_path / "dimodel_config.yaml"
    builder.build_yaml_path(path)
    assert read_diconfig(path) == builder.build_py_obj() == json.loads(path.read_text())
    assert builder.build_py_obj()["generation_config"] == {"top_k": 1}
    assert builder.build_py_obj()["model"]["huggingface_id"] == "a/b"
    again = AsModelRuntimeConfigBuilder().from_dict(builder.runtime_config_dict).build()
    again.model_path, again.weights_path = runtime.model_path, runtime.weights_path
    assert again == runtime
    pytest.importorskip("yaml")
    assert parse_diconfig("model:\n  vocab_size: 9\n") == {"model": {"vocab_size": 9}}
    for bad in ("a: [", "- 1", "5"):
        with pytest.raises(ValueError, match="config parse error"):
            parse_diconfig(bad)
    with pytest.raises(ValueError, match="there is no configuration"):
        read_diconfig(tmp_path / "none.yaml")


def test_multimedia_is_collected() -> None:
    info = MultiMediaInfo()
    info.set_multimedia_type(2)
    assert info.add_multimedia_content("151859", [1, 2]) == AsStatus.ALLSPARK_SUCCESS
    assert info.add_multimedia_content("", []) == AsStatus.ALLSPARK_PARAM_ERROR
    assert (info.multimedia_type, info.content) == (2, {"151859": [1, 2]})


def dlpack_methods(capsule: Any) -> dict[str, Any]:
    return {"__dlpack__": lambda **_: capsule, "__dlpack_device__": lambda: (1, 0)}


def test_ids_through_dlpack() -> None:
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(24, dtype=numpy.int16).reshape(4, 6)
    for part in (grid, grid[::2], grid[:, 1::2], grid.T, grid[::-1], grid[1], grid[:0]):
        expected = part.tolist() if part.ndim == 2 else [part.tolist()]
        assert read_rows(part) == expected
    for dtype in ("int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"):
        assert read_rows(numpy.array([1, 100], dtype=dtype)) == [[1, 100]]
    capsule = grid.__dlpack__()
    for _ in range(3):  # as the original: one capsule serves many requests
        assert read_rows(capsule) == grid.tolist()
    assert numpy.from_dlpack(SimpleNamespace(**dlpack_methods(capsule))).tolist() == grid.tolist()
    with pytest.raises(TokenIdsError, match="consumed elsewhere"):
        read_rows(capsule)
    for bad in (numpy.ones(3), numpy.ones((1, 1, 2), dtype=int), ctypes.py_object(1)):
        with pytest.raises(TokenIdsError):
            read_rows(bad)


def test_a_tensor_elsewhere_is_refused() -> None:
    class Elsewhere:
        def __dlpack__(self) -> Any:
            raise AssertionError("not to be asked")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(TokenIdsError, match=r"by \.cpu\(\)"):
        read_rows(Elsewhere())


def test_a_capsule_frees_its_tensor_once() -> None:
    numpy = pytest.importorskip("numpy")
    import gc
    import sys

    owner = numpy.arange(1000)
    before = sys.getrefcount(owner)
    for _ in range(100):
        read_rows(owner)
        capsule = owner.__dlpack__()
        assert read_rows(capsule) == read_rows(capsule)
        del capsule
    gc.collect()
    assert sys.getrefcount(owner) == before


def test_adapters_by_name_and_path(tmp_path: Path) -> None:
    weights = tmp_path / "model" / "m.asparam"
    for folder in ("model/beside", "far/away", "far/named"):
        (tmp_path / folder).mkdir(parents=True)
    folders = AdapterFolders()
    folders.note(None)
    folders.note({"input_base_dir": str(tmp_path / "far"), "lora_names": ["named"]})
    assert folders.find("beside", str(weights)) == tmp_path / "model" / "beside"
    assert folders.find("named", str(weights)) == tmp_path / "far" / "named"
    away = str(tmp_path / "far" / "away")
    assert folders.find(away, str(weights)) == folders.find(away + ".aslora", "") == Path(away)
    assert folders.find("nothing", str(weights)) is None
    assert adapter_name(away + ".aslora") == adapter_name(away + "/") == "away"
