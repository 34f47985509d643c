"""Text models of models with pictures: the pictures' part of a checkpoint is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from support.ernie_vl_folders import change_tensors

from headrace import LLM, SamplingParams
from headrace.errors import UnsupportedError
from headrace.media.model_settings import read_model_settings

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=16)
KINDS = [
    ("mistral3", "Mistral3ForConditionalGeneration", "ministral3", "language_model.model."),
    ("mistral3", "Mistral3ForConditionalGeneration", "ministral3", "model.language_model."),
]


def wrapped(folder: Path, kind: tuple[str, str, str, str]) -> list[dict[str, Any]]:
    """Writes the golden case as the text model of another; returns its prompts."""
    model_type, architecture, case, prefix = kind
    source = ROOT / "tests" / "golden" / case
    text = json.loads((source / "config.json").read_text())
    del text["architectures"]
    outer = {key: text.pop(key) for key in ("dtype", "torch_dtype", "eos_token_id") if key in text}
    config = outer | {
        "architectures": [architecture],
        "image_token_index": 9,
        "model_type": model_type,
        "text_config": text,
        "vision_config": {"hidden_size": 32, "model_type": "siglip_vision_model"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())

    def rename(tensors: Any) -> Any:
        def name_of(name: str) -> str:
            stem = "language_model." if prefix.startswith("language_model.") else ""
            if name.startswith("model."):
                return prefix + name.removeprefix("model.")
            return stem + name

        renamed = {name_of(name): tensor for name, tensor in tensors.items()}
        some = next(iter(tensors.values()))
        return renamed | {"vision_tower.post_layernorm.weight": some}

    change_tensors(folder, rename)
    prompts: list[dict[str, Any]] = json.loads((source / "golden.json").read_text())["prompts"]
    return prompts


@pytest.mark.parametrize("kind", KINDS, ids=["mistral3", "mistral3_renamed"])
def test_the_text_model_runs_alone(kind: tuple[str, str, str, str], tmp_path: Path) -> None:
    prompts = wrapped(tmp_path, kind)
    with LLM(str(tmp_path), dtype="float32") as llm:
        outputs = llm.generate([one["prompt"] for one in prompts], GREEDY, use_tqdm=False)
        for output, expected in zip(outputs, prompts, strict=True):
            assert output.outputs is not None
            assert output.outputs.token_ids == expected["tokens"][:16]
    with pytest.raises(UnsupportedError, match=f"{kind[0]}.*takes no images"):
        read_model_settings(tmp_path)
