"""Makes the folders of encoders beside this file. Needs torch and transformers; see README.md.

python tests/golden/make_encoders.py            # all cases of encoder_cases.py
python tests/golden/make_encoders.py bert
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import weights
from case_types import TOLERANCE_FACTOR
from encoder_cases import CASES, PROMPTS, EncoderCase
from safetensors.torch import save_file

ROOT = Path(__file__).parent / "encoders"
SEED = 11
ACTIVATIONS = {"identity": torch.nn.Identity(), "tanh": torch.nn.Tanh()}


def fill(model: torch.nn.Module, generator: np.random.Generator, storage: torch.dtype) -> None:
    """Random numbers that `storage` has exactly, and with which every part of a model shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = generator.standard_normal(tuple(parameter.shape))
            if parameter.dim() == 1:
                norm = "norm" in name.lower() and name.endswith("weight")
                values = 1 + 0.3 * values if norm else weights.BIAS_STD * values
            elif "embeddings" not in name:
                gain = weights.QUERY_KEY_GAIN if "query" in name or "key" in name else 1.5
                values *= gain / np.sqrt(parameter.shape[1])
            parameter.copy_(torch.from_numpy(values).to(storage).to(parameter.dtype))


class Dense(torch.nn.Module):
    """What sentence-transformers' Dense module computes."""

    def __init__(self, inputs: int, outputs: int, bias: bool, activation: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.activation](self.linear(x))


def make_dense(case: EncoderCase, hidden: int) -> torch.nn.Sequential:
    layers = []
    for outputs, bias, activation in case.dense:
        layers.append(Dense(hidden, outputs, bias, activation))
        hidden = outputs
    return torch.nn.Sequential(*layers)


def save_dense(dense: torch.nn.Sequential, folder: Path, storage: torch.dtype) -> None:
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), "Normalize"]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i > 0)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    names = {"identity": "torch.nn.modules.linear.Identity", "tanh": "torch.nn.Tanh"}
    for path, layer in zip(paths[2:], dense, strict=False):
        (folder / path).mkdir()
        config = {
            "in_features": layer.linear.in_features,
            "out_features": layer.linear.out_features,
            "bias": layer.linear.bias is not None,
            "activation_function": names[layer.activation],
        }
        write_json(folder / path / "config.json", config)
        tensors = {name: x.to(storage) for name, x in layer.state_dict().items()}
        save_file(tensors, folder / path / "model.safetensors")


def prompts(config: Any) -> list[dict[str, Any]]:
    """Ids without padding's, which RoBERTa doesn't count."""
    generator = np.random.default_rng(SEED)
    pairs = getattr(config, "type_vocab_size", 1) > 1
    return [
        {
            "prompt": generator.integers(5, config.vocab_size, length).tolist(),
            "second_text_at": second if pairs else 0,
        }
        for length, second in PROMPTS
    ]


@torch.no_grad()
def answers(
    model: torch.nn.Module, dense: torch.nn.Sequential, prompt: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the body, and what the layers behind pooling make of them (or nothing)."""
    ids = torch.tensor([prompt["prompt"]])
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if second := prompt["second_text_at"]:
        types = [[int(i >= second) for i in range(ids.shape[1])]]
        inputs["token_type_ids"] = torch.tensor(types)
    found = model(**inputs, output_hidden_states=True)
    rows = found.last_hidden_state if hasattr(found, "last_hidden_state") else None
    if rows is None:  # a classifier's
        rows = getattr(model, model.base_model_prefix)(**inputs).last_hidden_state
    head = found.logits[0] if hasattr(found, "logits") else torch.zeros(0)
    if len(dense) > 0:
        head = dense(rows[0].double().mean(0).to(rows.dtype))
    return rows[0].double().numpy(), head.double().numpy()


def runs(
    case: EncoderCase, folder: Path, dtype: torch.dtype, attention: str, asked: list[Any]
) -> list[tuple[np.ndarray, np.ndarray]]:
    kind = getattr(transformers, case.architecture)
    model = kind.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
    dense = make_dense(case, model.config.hidden_size).to(dtype)
    for i, layer in enumerate(dense):
        path = folder / f"{i + 2}_Dense" / "model.safetensors"
        layer.load_state_dict(transformers.modeling_utils.load_state_dict(path))
    return [answers(model, dense, prompt) for prompt in asked]


def largest(found: list[Any], exact: list[Any], part: int) -> float:
    errors = [np.abs(a[part] - b[part]) for a, b in zip(found, exact, strict=True)]
    return max((float(error.max()) for error in errors if error.size), default=0.0)


def rms(found: list[Any], exact: list[Any], part: int) -> float:
    errors = [(a[part] - b[part]).ravel() for a, b in zip(found, exact, strict=True)]
    joined = np.concatenate(errors)
    return float(np.sqrt((joined**2).mean())) if joined.size else 0.0


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def make(case: EncoderCase) -> None:
    folder = ROOT / case.name
    shutil.rmtree(folder, ignore_errors=True)
    storage = getattr(torch, case.dtype)
    kind = getattr(transformers, case.architecture)
    model = kind(kind.config_class(**case.config)).to(torch.float32).eval()
    generator = np.random.default_rng(SEED)
    fill(model, generator, storage)
    model.to(storage).save_pretrained(folder)
    if case.dense:
        dense = make_dense(case, model.config.hidden_size)
        fill(dense, generator, storage)
        save_dense(dense, folder, storage)

    asked = prompts(model.config)
    exact = runs(case, folder, torch.float64, "eager", asked)
    found = {name: runs(case, folder, torch.float32, name, asked) for name in ("sdpa", "eager")}
    half = {name: runs(case, folder, torch.bfloat16, name, asked) for name in ("sdpa", "eager")}
    error = [max(largest(each, exact, part) for each in found.values()) for part in (0, 1)]
    golden = {
        "storage": case.dtype,
        "prompts": asked,
        "float32_error": {"rows": error[0], "head": error[1]},
        "tolerance": {
            "rows": TOLERANCE_FACTOR * error[0],
            "head": TOLERANCE_FACTOR * error[1],
        },
        "bfloat16_error": {
            "rows_rms": rms(half["sdpa"], found["sdpa"], 0),
            "rows_max": max(largest(each, found["sdpa"], 0) for each in half.values()),
            "head_max": max(largest(each, found["sdpa"], 1) for each in half.values()),
        },
    }
    write_json(folder / "golden.json", golden)
    arrays = {}
    for i, (rows, head) in enumerate(found["sdpa"]):
        arrays[f"rows.{i}"] = torch.from_numpy(rows).float().contiguous()
        if head.size:
            arrays[f"head.{i}"] = torch.from_numpy(head).float().contiguous()
    save_file(arrays, folder / "golden.safetensors")
    print(case.name, golden["float32_error"], golden["bfloat16_error"])


def main() -> None:
    names = sys.argv[1:]
    for case in CASES:
        if not names or case.name in names:
            make(case)


if __name__ == "__main__":
    main()
