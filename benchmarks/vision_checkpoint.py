"""What make_checkpoint.py needs for vision models: configs, towers, processors, a tokenizer.

A vision shape is a text shape (flat, with Qwen's keys) and a `vision_config`. The tokenizer has a
token for each byte, unused ones up to the vocabulary's size less 293, then Qwen's special tokens at
their published distance from its end (with 151,936 tokens: at their published ids)."""

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>",
           "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>",
           "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>")  # fmt: skip
SPECIAL_BEFORE_END = 293
IDS = {"bos_token_id": "<|endoftext|>", "eos_token_id": "<|im_end|>",
       "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>",
       "image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}  # fmt: skip

# Of Qwen2.5-VL-3B and Qwen3-VL-2B.
QWEN2_5_TOWER = {
    "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
    "num_heads": 16, "in_chans": 3, "out_hidden_size": 2048, "patch_size": 14,
    "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2,
}  # fmt: skip
QWEN3_TOWER = {
    "depth": 24, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1024, "intermediate_size": 4096,
    "num_heads": 16, "in_channels": 3, "out_hidden_size": 2048, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [5, 11, 17],
}  # fmt: skip

QWEN2_5 = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
           "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
           "use_sliding_window": False, "vision_config": QWEN2_5_TOWER}  # fmt: skip
QWEN3 = {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"],
         "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20],
                          "mrope_interleaved": True},
         "vision_config": QWEN3_TOWER}  # fmt: skip

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def special_id(config: dict[str, Any], token: str) -> int:
    return int(config["vocab_size"]) - SPECIAL_BEFORE_END + SPECIAL.index(token)


def published(config: dict[str, Any]) -> dict[str, Any]:
    """config.json: Qwen3-VL's text keys lie in `text_config`."""
    ids = {key: special_id(config, token) for key, token in IDS.items()}
    config = config | ids
    if config["model_type"] == "qwen2_5_vl":
        return config
    vision = dict(config.pop("vision_config"), model_type="qwen3_vl")
    moved = ("model_type", "architectures", "tie_word_embeddings", "torch_dtype")
    top = {key: config.pop(key) for key in moved}
    text = config | {"model_type": "qwen3_vl_text", "attention_bias": False}
    return top | ids | {"vision_config": vision, "text_config": text}


def text_name(config: dict[str, Any], name: str) -> str:
    """The published name of a tensor of the decoder."""
    if config["model_type"] == "qwen2_5_vl" or not name.startswith("model."):
        return name
    return "model.language_model." + name.removeprefix("model.")


def tower_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the tower, in file order."""
    vision = config["vision_config"]
    width, inner, out = (vision[k] for k in ("hidden_size", "intermediate_size", "out_hidden_size"))
    patch, joined = vision["patch_size"], width * vision["spatial_merge_size"] ** 2
    old = config["model_type"] == "qwen2_5_vl"
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

    def norm(name: str, columns: int) -> None:
        shapes[f"{name}.weight"] = (columns,)
        if not old:
            shapes[f"{name}.bias"] = (columns,)

    shapes["patch_embed.proj.weight"] = (width, 3, vision["temporal_patch_size"], patch, patch)
    if not old:
        shapes["patch_embed.proj.bias"] = (width,)
        shapes["pos_embed.weight"] = (vision["num_position_embeddings"], width)
    for number in range(vision["depth"]):
        block = f"blocks.{number}."
        norm(f"{block}norm1", width)
        norm(f"{block}norm2", width)
        linear(f"{block}attn.qkv", 3 * width, width)
        linear(f"{block}attn.proj", width, width)
        for name in ("gate_proj", "up_proj") if old else ("linear_fc1",):
            linear(f"{block}mlp.{name}", inner, width)
        linear(f"{block}mlp.{'down_proj' if old else 'linear_fc2'}", width, inner)
    up, down = ("mlp.0", "mlp.2") if old else ("linear_fc1", "linear_fc2")
    mergers = [f"deepstack_merger_list.{i}" for i in range(len(_deepstack(config)))]
    for name in ("merger", *mergers):
        norm(f"{name}.{'ln_q' if old else 'norm'}", width if name == "merger" else joined)
        linear(f"{name}.{up}", joined, joined)
        linear(f"{name}.{down}", out, joined)
    prefix = "visual." if old else "model.visual."
    return {prefix + name: dims for name, dims in shapes.items()}


def _deepstack(config: dict[str, Any]) -> list[int]:
    return list(config["vision_config"].get("deepstack_visual_indexes", []))


def grid(config: dict[str, Any], height: int, width: int) -> tuple[int, int]:
    """Patches of an image within the processor's bounds."""
    merge = config["vision_config"]["spatial_merge_size"]
    side = config["vision_config"]["patch_size"] * merge
    return round(height / side) * merge, round(width / side) * merge


def tower_operations(config: dict[str, Any], height: int, width: int) -> float:
    """Of an image in pixels: every matrix, and two products of each pair that sees each other."""
    vision = config["vision_config"]
    rows, columns = grid(config, height, width)
    count, merge = rows * columns, vision["spatial_merge_size"]
    matmul = 0.0
    for name, dims in tower_shapes(config).items():
        if len(dims) == 1 or "pos_embed" in name:
            continue
        numbers = 1
        for size in dims:
            numbers *= size
        matmul += 2.0 * numbers * (count / merge**2 if "merger" in name else count)
    side = vision.get("window_size", 0) // vision["patch_size"]
    full = len(vision["fullatt_block_indexes"]) if side else vision["depth"]
    windows = _squares(rows, side) * _squares(columns, side) if side else 0
    pairs = full * count**2 + (vision["depth"] - full) * windows
    return float(matmul + 4.0 * pairs * vision["hidden_size"])


def _squares(length: int, side: int) -> int:
    """The squares of a side's parts, added up."""
    return length // side * side**2 + (length % side) ** 2


def write_files(config: dict[str, Any], folder: Path) -> None:
    """What lies beside config.json and the weights."""
    old = config["model_type"] == "qwen2_5_vl"
    processor = {
        "patch_size": config["vision_config"]["patch_size"], "temporal_patch_size": 2,
        "merge_size": 2, "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor" if old else "Qwen3VLProcessor",
        "image_mean": [0.48145466, 0.4578275, 0.40821073] if old else [0.5] * 3,
        "image_std": [0.26862954, 0.26130258, 0.27577711] if old else [0.5] * 3,
    }  # fmt: skip
    if old:
        processor |= {"min_pixels": 3136, "max_pixels": 12845056}
    else:
        processor |= {"size": {"shortest_edge": 65536, "longest_edge": 16777216}}
    tokenizer = {
        "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "add_prefix_space": False, "unk_token": None,
        "bos_token": None, "errors": "replace", "model_max_length": 131072,
        "clean_up_tokenization_spaces": False, "additional_special_tokens": SPECIAL[1:],
        "chat_template": _TEMPLATE,
    }  # fmt: skip
    for name, content in (
        ("preprocessor_config", processor),
        ("tokenizer_config", tokenizer),
        ("tokenizer", _tokenizer(config)),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1))


def _tokenizer(config: dict[str, Any]) -> dict[str, Any]:
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(256 + i) for i in range(256 - len(printed)))
    letters = [chr(i) for i in printed] + list(others)
    unused = config["vocab_size"] - SPECIAL_BEFORE_END - len(letters) - 1
    words = [*letters, "th", *(f"t{i}" for i in range(unused))]
    special = [
        {"id": special_id(config, token), "content": token, "special": True, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for token in SPECIAL
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": level | {"use_regex": True},
        "post_processor": None, "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": {word: i for i, word in enumerate(words)},
            "merges": [["t", "h"]],
        },
    }  # fmt: skip
