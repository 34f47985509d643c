"""Opens the tiny vision model with transformers, which knows it under names of its own.

python with_transformers.py            # scores ./checkpoint on heldout.jsonl
python with_transformers.py FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeForConditionalGeneration

from beside import HERE, is_right, load_heldout, words
from pictures import PATCH, Picture, draw, patches
from questions import picture_of
from tokens import ASSISTANT, BEGIN, EOS_ID, USER
from vision_model import VisionModel, VisionShape
from vision_tokens import TEXT_SIZE, media_text, positions

_OF_IMAGES = ("pixel_values", "image_grid_thw")


def reference_config(published: dict[str, Any]) -> dict[str, Any]:
    """A published config.json in transformers' spelling."""
    vision = published["vision_config"]
    pairs = published["head_dim"] // 2 - published["freq_allocation"]
    sparse = range(
        min(published["moe_layer_start_index"]), max(published["moe_layer_end_index"]) + 1
    )
    layers = range(published["num_hidden_layers"])
    same = words(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim rms_norm_eps max_position_embeddings pad_token_id "
        "bos_token_id eos_token_id hidden_act use_bias moe_intermediate_size moe_k "
        "moe_num_shared_experts moe_norm_min tie_word_embeddings"
    )
    text = {key: published[key] for key in same} | {
        "moe_num_experts": published["moe_num_experts"][0],
        "mlp_layer_types": ["sparse" if i in sparse else "dense" for i in layers],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": published["rope_theta"],
            "mrope_section": [pairs // 2, pairs // 2, published["freq_allocation"]],
        },
    }
    around = ("image_start", "image_end", "video_start", "video_end")
    return {
        "architectures": published["architectures"],
        "model_type": "ernie4_5_vl_moe",
        "text_config": text,
        "vision_config": {
            **{key: vision[key] for key in ("depth", "hidden_size", "hidden_act", "num_heads")},
            "intermediate_size": vision["mlp_ratio"] * vision["hidden_size"],
            "patch_size": vision["patch_size"],
            "spatial_merge_size": vision["spatial_merge_size"],
            "temporal_merge_size": published["temporal_conv_size"],
        },
        "image_token_id": published["im_patch_id"],
        "video_token_id": published["im_patch_id"],  # the rows of clips have the same id
        **{f"{name}_token_id": published[f"{name}_token_id"] for name in around},
        "tie_word_embeddings": published["tie_word_embeddings"],
    }


def open_reference(
    folder: Path, dtype: torch.dtype = torch.float32
) -> Ernie4_5_VLMoeForConditionalGeneration:
    """The checkpoint as transformers' model."""
    published = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = Ernie4_5_VLMoeConfig(**reference_config(published))
    with tempfile.TemporaryDirectory() as temporary:
        config.save_pretrained(temporary)
        shutil.copy(folder / "model.safetensors", temporary)
        model, found = Ernie4_5_VLMoeForConditionalGeneration.from_pretrained(
            temporary, dtype=dtype, output_loading_info=True
        )
    odd = {name: found[name] for name in ("missing_keys", "unexpected_keys") if found[name]}
    if odd:
        raise RuntimeError(f"transformers reads the checkpoint otherwise: {odd}")
    return model.eval()


def reference_inputs(
    picture: Picture | None, ids: list[int], positions: list[tuple[int, int, int]], patch_id: int
) -> dict[str, torch.Tensor]:
    """What transformers' model takes for a prompt, with the positions that Headrace gives it."""
    video = picture is not None and picture.frames > 1
    tokens = torch.tensor([ids])
    rows = tokens == patch_id
    inputs = {
        "input_ids": tokens,
        "position_ids": torch.tensor(positions).T[:, None],
        "mm_token_type_ids": rows.int() * (2 if video else 1),
        "moe_mm_token_type_ids": (tokens >= patch_id).int(),
    }
    if picture is not None:
        shown = torch.from_numpy(patches(draw(picture))).flatten(0, 1)
        grid = [[picture.frames, picture.height // PATCH, picture.width // PATCH]]
        values, thw = ("pixel_values_videos", "video_grid_thw") if video else _OF_IMAGES
        inputs |= {values: shown, thw: torch.tensor(grid)}
    return inputs


def prompt_of(tokenizer: Tokenizer, item: dict[str, Any]) -> list[int]:
    """The tokens of a line of heldout.jsonl, up to where the reply begins."""
    text = f"{BEGIN}{USER}{media_text(picture_of(item))[0]}{item['question']}\n{ASSISTANT}"
    return tokenizer.encode(text, add_special_tokens=False).ids


@torch.no_grad()
def largest_difference(folder: Path) -> float:
    """Between the logits of the model that was trained and of transformers', both in float32, over
    the prompts of heldout.jsonl."""
    own = VisionModel(VisionShape(), TEXT_SIZE).eval()
    stored = load_file(folder / "model.safetensors")
    own.load_state_dict({name: value.float() for name, value in stored.items()})
    reference = open_reference(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    largest = 0.0
    for item in load_heldout(HERE / "heldout.jsonl"):
        picture, ids = picture_of(item), prompt_of(tokenizer, item)
        places = positions(ids, media_text(picture)[1])
        rows = own.rows(torch.from_numpy(draw(picture))[None])
        hidden = own(torch.tensor([ids]), torch.tensor(places).T[:, None], rows)
        theirs = reference(**reference_inputs(picture, ids, places, TEXT_SIZE)).logits
        largest = max(largest, float((own.logits(hidden) - theirs).abs().max()))
    return largest


@torch.no_grad()
def reply_to(
    model: Ernie4_5_VLMoeForConditionalGeneration, tokenizer: Tokenizer, item: dict[str, Any]
) -> str:
    """The greedy reply to a line of heldout.jsonl, up to 32 tokens."""
    picture = picture_of(item)
    grid = media_text(picture)[1]
    prompt = prompt_of(tokenizer, item)
    ids = list(prompt)
    while len(ids) < len(prompt) + 32 and ids[-1] != EOS_ID:
        inputs = reference_inputs(picture, ids, positions(ids, grid), TEXT_SIZE)
        ids.append(int(model(**inputs).logits[0, -1].argmax()))
    return tokenizer.decode(ids[len(prompt) :])


def score(folder: Path, dtype: torch.dtype) -> None:
    """Prints how many questions of heldout.jsonl transformers answers right, greedily."""
    model = open_reference(folder, dtype)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    items = load_heldout(HERE / "heldout.jsonl")
    right: Counter[str] = Counter()
    for item in items:
        reply = reply_to(model, tokenizer, item)
        if is_right(reply, item):
            right[item["skill"]] += 1
        else:
            print(f"  wrong: {item['id']} {item['key']}: {item['question']} -> {reply}")
    asked = Counter(item["skill"] for item in items)
    print(", ".join(f"{skill} {right[skill]}/{count}" for skill, count in asked.items()))
    print(f"{dtype}: {right.total()} of {len(items)} right", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "checkpoint"
    print(f"logits differ from transformers' by at most {largest_difference(chosen):.1e}")
    for weights in (torch.float32, torch.bfloat16):
        score(chosen, weights)
