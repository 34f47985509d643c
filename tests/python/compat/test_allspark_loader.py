"""HuggingFaceModel and DashInferModel: configuration, tokenizer, serialization."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from allspark_setup import GREEDY, NAME, OK, config, loader, prompt

from headrace import shipped_model
from headrace.allspark import (
    AsException,
    DashInferModel,
    Engine,
    HuggingFaceModel,
    ModelSerializerException,
    TargetDevice,
)
from headrace.allspark.model_loader import ConfigFieldMissingError


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return loader()


def answer(engine: Engine, owner: Any) -> list[int]:
    status, handle, queue = engine.start_request_ids(NAME, owner, prompt(owner), GREEDY)
    assert status == OK
    engine.sync_request(NAME, handle)
    assert engine.release_request(NAME, handle) == OK
    tokens: list[int] = queue.Get().ids_from_generate
    return tokens


def test_configuration(model: HuggingFaceModel) -> None:
    assert model.get_model_config()["model_type"] == "ernie4_5"
    assert model.get_model_context_length() == 4096
    assert model.as_model_config["vocab_size"] == 2048
    assert model.free_model() is model.free_memory_serialize_file() is model
    runtime = config(model)
    assert runtime.model_path == runtime.weights_path == shipped_model()
    generation = model.create_reference_generation_config_builder(runtime).build()
    assert (generation["max_length"], generation["eos_token_id"]) == (512, 2)
    assert generation["do_sample"] is True
    assert "max_length" not in model.create_reference_generation_config_builder().build()


def test_the_tokenizer_has_the_defaults_of_transformers(model: HuggingFaceModel) -> None:
    tokenizer = model.init_tokenizer().get_tokenizer()
    assert tokenizer is model.get_tokenizer() is model.tokenizer
    assert (tokenizer.eos_token_id, len(tokenizer)) == (2, tokenizer.vocab_size)
    ids = tokenizer.encode("Hello")
    assert tokenizer.decode(ids) == "Hello"
    assert tokenizer("Hello") == {"input_ids": ids, "attention_mask": [1] * len(ids)}
    assert tokenizer(["Hello", "a"])["input_ids"] == [ids, tokenizer.encode("a")]
    assert tokenizer.batch_decode([ids, ids]) == ["Hello", "Hello"]
    assert tokenizer.get_vocab()[tokenizer.convert_ids_to_tokens(ids[0])] == ids[0]
    talk = [{"role": "user", "content": "hi"}]
    bare = tokenizer.apply_chat_template(talk, tokenize=False)
    asked = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert asked.startswith(bare)
    assert asked != bare
    numpy = pytest.importorskip("numpy")
    rows = tokenizer.encode("Hello", return_tensors="np")
    assert rows.shape == (1, len(ids))
    assert tokenizer.decode(numpy.array(ids)) == "Hello"
    with pytest.raises(ValueError, match="return_tensors"):
        tokenizer.encode("Hello", return_tensors="tf")


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    missing = HuggingFaceModel(str(tmp_path / "none"), "none")
    with pytest.raises(ModelSerializerException) as caught:
        missing.load_model()
    assert caught.value.code == 1
    assert str(caught.value) == f"[1] {missing}"
    assert "There is no model folder" in caught.value.args[0]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    strange = HuggingFaceModel(str(tmp_path), "strange")
    with pytest.raises(ValueError, match="No adapter found for Model"):
        strange.read_model_config()
    with pytest.raises(ModelSerializerException):
        strange.load_model()


def test_serialize_to_memory_writes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    engine, model = Engine(), loader()
    for in_memory in (False, True):
        own = HuggingFaceModel(shipped_model(), "tiny", in_memory_serialize=in_memory)
        assert own.load_model().serialize_to_memory(engine).free_model() is own
    engine.install_model(config(model.serialize_to_memory(engine)))
    engine.start_model(NAME)
    assert answer(engine, model)
    engine.release_model(NAME)
    assert not list(tmp_path.iterdir())
    assert HuggingFaceModel(shipped_model(), "t", True).serialize(engine) is not None
    with pytest.raises(ValueError, match="model_output_dir is required"):
        loader().serialize(engine)


def test_quantization_happens_when_it_is_installed() -> None:
    engine, model = Engine(), loader()
    settings = {"quant_method": "instant_quant", "weight_format": "fp8_e4m3"}
    model.serialize_to_memory(engine, enable_quant=True, customized_quant_config=settings)
    with pytest.raises(RuntimeError, match="instant_quant, weight_only, fp8_e4m3 are not avail"):
        engine.install_model(config(model))
    settings["compute_method"] = "activate_quant"  # DashInfer's FP8, which the engine has on GPUs
    model.serialize_to_memory(engine, enable_quant=True, customized_quant_config=settings)
    with pytest.raises(RuntimeError, match="no products of FP8, as quantization fp8 asks for"):
        engine.install_model(config(model))
    settings = {"quant_method": "instant_quant", "weight_format": "int8"}
    model.serialize_to_memory(engine, enable_quant=True, customized_quant_config=settings)
    engine.install_model(config(model))
    engine.release_model(NAME)
    model.serialize_to_memory(engine, customized_quant_config=settings)  # not enabled
    engine.install_model(config(model))
    engine.release_model(NAME)
    with pytest.raises(ValueError, match="no quantization_config"):
        loader().init_quantization()
    mode = loader().get_as_quant_config_and_weight_process(customized_quant_config=settings)
    assert mode.quantize_mode.name == "A16W8"


def serialized(model: HuggingFaceModel, target: Path, **values: Any) -> HuggingFaceModel:
    return model.serialize_to_path(Engine(), str(target), **values)


def test_serialize_to_path(tmp_path: Path) -> None:
    plain, packed = loader(), serialized(loader(), tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "tiny_model.asgraph",
        "tiny_model.asparam",
        "tiny_model.model",
    }
    answers = []
    for model in (plain, packed):
        engine = Engine()
        engine.install_model(config(model))
        assert engine.start_model(NAME) == OK
        answers.append(answer(engine, model))
        engine.release_model(NAME)
    assert answers[0] == answers[1] != []
    info = Engine().get_file_information(config(packed).model_path, config(packed).weights_path)
    assert info.create_version_graph == info.current_version_engine
    with pytest.raises(ValueError, match="not the files"):
        Engine().get_file_information(shipped_model(), shipped_model())


def test_skip_if_exists_is_never_stale(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    shutil.copytree(shipped_model(), source)

    def write(**values: Any) -> float:
        HuggingFaceModel(source, "m", **values).load_model().serialize_to_path(
            Engine(), str(target), skip_if_exists=True
        )
        return (target / "m.asparam").stat().st_mtime_ns

    first = write()
    assert write() == first
    changed = bytearray((source / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (source / "model.safetensors").write_bytes(changed)
    second = write()
    assert second != first
    third = write(user_set_data_type="float32")
    assert third != second
    (target / "m.asparam").write_bytes(b"broken")
    assert write(user_set_data_type="float32") != third
    assert (target / "m.asparam").stat().st_size > 1000


def test_dashinfer_model(tmp_path: Path) -> None:
    source = serialized(loader(), tmp_path)
    source.export_model_diconfig(tmp_path / "dimodel_config.yaml")
    model = DashInferModel(str(tmp_path), "tiny/model").load_model().read_model_config()
    builder = model.create_reference_runtime_config_builder(NAME, TargetDevice.CPU, [0], 4, 256)
    runtime = builder.kv_cache_span_size(16).build()
    assert runtime.model_path == str(tmp_path / "tiny_model.asgraph")
    assert model.get_model_context_length() == 4096
    engine = Engine()
    engine.install_model(runtime)
    assert engine.start_model(NAME) == OK
    assert model.serialize_to_memory(engine).free_model() is model
    generation = model.create_reference_generation_config_builder(runtime)
    assert generation.build()["max_length"] == 256
    _, handle, queue = engine.start_request_text(NAME, model, "User: hi", generation)
    engine.sync_request(NAME, handle)
    assert queue.Get().ids_from_generate
    assert answer(engine, model)
    engine.release_model(NAME)


def test_a_packed_model_needs_its_source_no_more(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(shipped_model(), source)
    model = HuggingFaceModel(source, "m").load_model()
    serialized(model, tmp_path / "out").export_model_diconfig(tmp_path / "config.yaml")
    shutil.rmtree(source)
    text = json.loads((tmp_path / "config.yaml").read_text())
    text["tokenizer"]["local_path"] = ""
    packed = DashInferModel(str(tmp_path / "out"), "m", config_content=json.dumps(text))
    engine = Engine()
    engine.install_model(
        packed.create_reference_runtime_config_builder(NAME, max_batch=2, max_context_length=256)
        .kv_cache_span_size(16)
        .build()
    )
    assert engine.start_model(NAME) == OK
    assert answer(engine, packed)
    engine.release_model(NAME)


BAD_GRAPHS: list[tuple[str, str]] = [
    ("not json", "is no .asgraph"),
    ("[]", "is no .asgraph"),
    ('{"format": "other"}', "is no .asgraph"),
    ('{"format": "headrace-asgraph", "version": 9}', "version 9"),
    ('{"format": "headrace-asgraph", "version": 1, "folder": "../up"}', "'folder' is"),
    ('{"format": "headrace-asgraph", "version": 1, "folder": 5}', "'folder' is"),
    (
        '{"format": "headrace-asgraph", "version": 1, "folder": "a", "quantization": 5}',
        "'quantization' is 5",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_GRAPHS)
def test_bad_graphs(text: str, message: str, tmp_path: Path) -> None:
    graph, param = tmp_path / "m.asgraph", tmp_path / "m.asparam"
    graph.write_text(text)
    param.write_bytes(b"")
    runtime = config(loader(), model_path=str(graph), weights_path=str(param))
    with pytest.raises(AsException, match=message) as caught:
        Engine().install_model(runtime)
    assert caught.value.status.name == "ALLSPARK_IO_ERROR"


def test_missing_sections(tmp_path: Path) -> None:
    with pytest.raises(ConfigFieldMissingError, match="'runtime_config'"):
        DashInferModel(tmp_path, config_content='{"generation_config": {}}')
    with pytest.raises(ValueError, match="there is no configuration"):
        DashInferModel(tmp_path)
