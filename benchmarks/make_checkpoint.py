"""Writes a random-weight checkpoint at a published shape.

    python benchmarks/make_checkpoint.py SHAPE FOLDER [--spread 0.02] [--seed 0]

SHAPE is one of SHAPES. Weights are bfloat16 (those of untied and of vision models repeat 4 million
numbers: 16 GB in seconds); norms are 1. The tokenizer is the shipped model's (a vision model's is
of vision_checkpoint.py), so that the folder opens like any other: benchmarks feed token ids.
gpt-oss has its experts in MXFP4. NAME-tower has a vision model's whole tower and a decoder as small
as it may be. With a small spread and a tied head a model repeats one token: use --spread 0.3 where
tokens are compared."""

import argparse
import json
import shutil
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import gpt_oss_checkpoint as gpt_oss
import vision_checkpoint as vision

ROOT = Path(__file__).resolve().parents[1]
TOKENIZER = ROOT / "examples/tiny_model/checkpoint"

# Numbers that a large checkpoint's matrices repeat, each from where the one before it ended: of an
# odd count, so that no two matrices are the same, which an engine may notice.
POOL = (1 << 22) - 3

_ERNIE = {"model_type": "ernie4_5", "architectures": ["Ernie4_5ForCausalLM"], "use_bias": False}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
_QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
_ERNIE_MOE = {"model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"],
              "use_bias": False, "moe_layer_interval": 1, "moe_use_aux_free": True,
              "moe_num_shared_experts": 2, "moe_layer_start_index": 1}  # fmt: skip
_QWEN3_MOE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}  # fmt: skip
_QWEN3_5 = {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"],
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                                "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                                "mrope_section": [11, 11, 10]}}  # fmt: skip
_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def _shape(base: dict[str, Any], vocab: int, hidden: int, inter: int, layers: int, heads: int,
           kv: int, head_dim: int, theta: float, eps: float, context: int,
           tied: bool = True) -> dict[str, Any]:  # fmt: skip
    return base | {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inter,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": head_dim, "rope_theta": theta, "rms_norm_eps": eps,
        "max_position_embeddings": context, "tie_word_embeddings": tied, "hidden_act": "silu",
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


_QWEN3_30B = _shape(
    _QWEN3_MOE | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    151936, 2048, 6144, 48, 32, 4, 128, 1e6, 1e-6, 40960, False,
)  # fmt: skip
_QWEN3_5_08B = _shape(
    _QWEN3_5 | {"linear_num_value_heads": 16},
    248320, 1024, 3584, 24, 8, 2, 256, 1e7, 1e-6, 262144,
)  # fmt: skip
_QWEN3_5_4B = _shape(
    _QWEN3_5 | {"linear_num_value_heads": 32},
    248320, 2560, 9216, 32, 16, 4, 256, 1e7, 1e-6, 262144,
)  # fmt: skip
_ERNIE_21B = _shape(
    _ERNIE_MOE | {"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536},
    103424, 2560, 12288, 28, 20, 4, 128, 5e5, 1e-5, 131072,
)  # fmt: skip
_SMOKE_MOE = _shape(
    _QWEN3_MOE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    4096, 128, 384, 2, 4, 2, 32, 1e6, 1e-6, 4096,
)  # fmt: skip
_QWEN2_5_VL = _shape(vision.QWEN2_5, 151936, 2048, 11008, 36, 16, 2, 128, 1e6, 1e-6, 128000)
_QWEN3_VL = _shape(vision.QWEN3, 151936, 2048, 6144, 28, 16, 8, 128, 5e6, 1e-6, 262144)
_SMALL_DECODER = {"vocab_size": 4096, "intermediate_size": 64}
_SMOKE_TOWER = {"depth": 2, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2,
                "out_hidden_size": 128, "fullatt_block_indexes": [1]}  # fmt: skip

SHAPES = {
    "ernie-4.5-0.3b": _shape(_ERNIE, 103424, 1024, 3072, 18, 16, 2, 128, 5e5, 1e-5, 131072),
    "qwen2-0.5b": _shape(_QWEN2, 151936, 896, 4864, 24, 14, 2, 64, 1e6, 1e-6, 131072),
    "qwen3-0.6b": _shape(_QWEN3, 151936, 1024, 3072, 28, 16, 8, 128, 1e6, 1e-6, 40960),
    "qwen3.5-0.8b": _QWEN3_5_08B,
    "qwen3.5-4b": _QWEN3_5_4B,
    # As large, with attention alone.
    "qwen3-like-0.8b": _shape(_QWEN3, 248320, 1024, 4032, 24, 16, 8, 128, 1e6, 1e-6, 262144),
    "qwen3-like-4b": _shape(_QWEN3, 248320, 2560, 9472, 32, 32, 8, 128, 1e6, 1e-6, 262144),
    "llama-3.2-1b": _shape(_LLAMA, 128256, 2048, 8192, 16, 32, 8, 64, 5e5, 1e-5, 131072),
    "llama-3.1-8b": _shape(_LLAMA, 128256, 4096, 14336, 32, 32, 8, 128, 5e5, 1e-5, 131072, False),
    "qwen3-30b-a3b": _QWEN3_30B,
    # The vocabulary is cut as the layers are: the head has its share of a token's bytes.
    "qwen3-30b-a3b-8-layers": _QWEN3_30B | {"num_hidden_layers": 8, "vocab_size": 25344},
    "ernie-4.5-21b-a3b": _ERNIE_21B,
    "gpt-oss-20b-8-layers": gpt_oss.CONFIG_20B | {"num_hidden_layers": 8, "vocab_size": 67072},
    "qwen2.5-vl-3b": _QWEN2_5_VL,
    "qwen2.5-vl-3b-12-layers": _QWEN2_5_VL | {"num_hidden_layers": 12},
    "qwen2.5-vl-3b-tower": _QWEN2_5_VL | _SMALL_DECODER | {"num_hidden_layers": 1},
    "qwen3-vl-2b": _QWEN3_VL,
    "qwen3-vl-2b-tower": _QWEN3_VL | _SMALL_DECODER | {"num_hidden_layers": 4},
    "smoke-vl": _shape(
        vision.QWEN2_5
        | {
            "vision_config": vision.QWEN2_5_TOWER | _SMOKE_TOWER,
            "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        },
        4096,
        128,
        384,
        2,
        4,
        2,
        32,
        1e6,
        1e-6,
        4096,
    ),
    "smoke-moe": _SMOKE_MOE,
    "smoke": _shape(_ERNIE, 4096, 128, 384, 2, 4, 2, 32, 5e5, 1e-5, 4096),
}


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint (of a vision model: of its decoder), in file order."""
    hidden = config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (hidden,)
        mixer = _states(config) if keeps_state(config, i) else _attention(config)
        shapes |= {layer + name: dims for name, dims in mixer.items()}
        for block, width in _feed_forwards(config):
            shapes[f"{layer}mlp.{block}gate_proj.weight"] = (width, hidden)
            shapes[f"{layer}mlp.{block}up_proj.weight"] = (width, hidden)
            shapes[f"{layer}mlp.{block}down_proj.weight"] = (hidden, width)
        if "num_experts" in config:
            shapes[f"{layer}mlp.gate.weight"] = (config["num_experts"], hidden)
    return shapes


def keeps_state(config: dict[str, Any], layer: int) -> bool:
    """Whether the layer has a state in place of attention."""
    return bool((layer + 1) % config.get("full_attention_interval", 1))


def _attention(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, d, kind = config["hidden_size"], config["head_dim"], config["model_type"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    gates = 2 if kind == "qwen3_5_text" else 1
    shapes: dict[str, tuple[int, ...]] = {}
    for name, rows in (("q", gates * q), ("k", kv), ("v", kv)):
        shapes[f"self_attn.{name}_proj.weight"] = (rows, hidden)
        if kind in ("qwen2", "qwen2_5_vl"):
            shapes[f"self_attn.{name}_proj.bias"] = (rows,)
    shapes["self_attn.o_proj.weight"] = (hidden, q)
    if kind in ("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_5_text"):
        for norm in ("q_norm", "k_norm"):
            shapes[f"self_attn.{norm}.weight"] = (d,)
    return shapes


def _states(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of the gated delta rule."""
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    shapes = {
        "in_proj_qkv.weight": (2 * keys + values, hidden),
        "in_proj_z.weight": (values, hidden),
        "in_proj_a.weight": (heads, hidden),
        "in_proj_b.weight": (heads, hidden),
        "conv1d.weight": (2 * keys + values, 1, config["linear_conv_kernel_dim"]),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (config["linear_value_head_dim"],),
        "out_proj.weight": (hidden, values),
    }
    return {f"linear_attn.{name}": dims for name, dims in shapes.items()}


def _feed_forwards(config: dict[str, Any]) -> list[tuple[str, int]]:
    """Of a layer: what stands in their names, and their widths."""
    if "num_experts" not in config:
        return [("", config["intermediate_size"])]
    width = config["moe_intermediate_size"]
    return [(f"experts.{number}.", width) for number in range(config["num_experts"])]


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_config(shape: str, folder: Path) -> Path:
    """A folder without weights, for `load_choices="dummy"`; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPES[shape]
    if "vision_config" in config:
        vision.write_files(config, folder)
        (folder / "config.json").write_text(json.dumps(vision.published(config), indent=1))
        return folder
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TOKENIZER / name, folder / name)
    if config["model_type"] == "gpt_oss":
        config = gpt_oss.published(config)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def write(shape: str, folder: Path, spread: float = 0.02, seed: int = 0) -> Path:
    """Makes `folder` unless it already holds this checkpoint; returns it."""
    config = SHAPES[shape]
    if config["model_type"] == "ernie4_5_moe":
        raise SystemExit(f"{shape} is for benchmarks/large.py: its weights are made at load")
    identity = {"shape": shape, "spread": spread, "seed": seed}
    stamp = folder / "made_by.json"
    if stamp.exists() and json.loads(stamp.read_text()) == identity:
        return folder
    write_config(shape, folder)
    if config["model_type"] == "gpt_oss":
        gpt_oss.write_tensors(config, folder / "model.safetensors", spread, seed)
    else:
        _write_tensors(config, folder / "model.safetensors", spread, seed)
    stamp.write_text(json.dumps(identity))
    return folder


def _write_tensors(config: dict[str, Any], path: Path, spread: float, seed: int) -> None:
    shapes = _all_shapes(config)
    header, offset = {}, 0
    for name, dims in shapes.items():
        size = 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(seed)
    fresh = config["tie_word_embeddings"] and "vision_config" not in config
    pool = None if fresh else to_bfloat16(_values(rng, "", (POOL, 1), spread))
    used = 0
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dims in shapes.items():
            if pool is None or len(dims) == 1:
                file.write(to_bfloat16(_values(rng, name, dims, spread)).tobytes())
            else:
                used = _write_pooled(file, pool, used, int(np.prod(dims)))


def _all_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes = tensor_shapes(config)
    if "vision_config" not in config:
        return shapes
    shapes = {vision.text_name(config, name): dims for name, dims in shapes.items()}
    return shapes | vision.tower_shapes(config)


def _write_pooled(file: BinaryIO, pool: np.ndarray, begin: int, count: int) -> int:
    """Writes `count` numbers, the first of them `pool[begin]`; returns where the next begin."""
    while count > 0:
        part = pool[begin : begin + count]
        file.write(part.tobytes())
        count -= part.size
        begin = (begin + part.size) % pool.size
    return begin


def _values(rng: np.random.Generator, name: str, dims: tuple[int, ...], spread: float) -> Any:
    if len(dims) == 1:
        return np.ones(dims) if name.endswith(".weight") else np.zeros(dims)
    return rng.standard_normal(dims, dtype=np.float32) * np.float32(spread)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spread", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(write(args.shape, args.folder, args.spread, args.seed))
