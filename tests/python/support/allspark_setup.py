"""An allspark engine with the shipped model in it, for tests."""

from __future__ import annotations

from typing import Any

from conftest import ROOT

from headrace import shipped_model
from headrace.allspark import AsStatus, Engine, HuggingFaceModel, TargetDevice

CHECKPOINT = ROOT / "examples" / "tiny_model" / "checkpoint" / "config.json"
NAME = "tiny"
OK = AsStatus.ALLSPARK_SUCCESS
GREEDY = {"top_k": 1, "max_length": 64}
LONG = {"top_k": 1, "max_length": 400, "early_stopping": False}


def loader() -> HuggingFaceModel:
    return HuggingFaceModel(shipped_model(), "tiny/model").load_model().read_model_config()


def config(model: HuggingFaceModel, name: str = NAME, **values: Any) -> Any:
    """Installs quickly: few tokens, small blocks."""
    builder = model.create_reference_runtime_config_builder(
        name, TargetDevice.CPU, [0], max_batch=values.pop("max_batch", 8), max_context_length=512
    )
    built = builder.kv_cache_span_size(16).build()
    for field, value in values.items():
        setattr(built, field, value)
    return built


def running(model: HuggingFaceModel, **values: Any) -> Engine:
    engine = Engine()
    engine.install_model(config(model, **values))
    assert engine.start_model(NAME) == OK
    return engine


def prompt(model: HuggingFaceModel, text: str = "What is 2 + 3?") -> list[int]:
    messages = [{"role": "user", "content": text}]
    ids: list[int] = model.get_tokenizer().apply_chat_template(messages, add_generation_prompt=True)
    return ids
