"""Model folders of vision families for the fake engine: configuration, tokenizer and template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model_folders import byte_level, write_config, write_json

# In the form of Qwen2-VL's published template: strings or lists, no text of its own around them.
QWEN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' or 'image' in c or 'image_url' in c %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif c.type == 'video' or 'video' in c %}"
    "{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# In the form of FastDeploy's page: the template makes marks of `image_url` itself.
ERNIE = (
    "{{ '<|begin_of_sentence|>' }}{% set n = namespace(i=0, v=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{{ 'User: ' }}{% elif m.role == 'assistant' %}"
    "{{ '\nAssistant: ' }}{% endif %}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type in ('image', 'image_url') %}{% set n.i = n.i + 1 %}"
    "{{ 'Picture ' ~ n.i ~ ':<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>' }}"
    "{% elif c.type in ('video', 'video_url') %}{% set n.v = n.v + 1 %}"
    "{{ 'Video ' ~ n.v ~ ':<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>' }}"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\nAssistant: ' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>' }}"
    "{% else %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
# Lists alone, as SmolVLM's.
SMOLVLM = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}: "
    "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}"
    "{% elif c.type == 'image' %}{{ '<image>' }}{% elif c.type == 'video' %}{{ '<video>' }}"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
# In the form of Gemma 3's: roles of its own, lists or strings.
GEMMA = (
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}{{ '<start_of_image>' }}"
    "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
TOKENS = {
    "qwen": [
        "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
        "<|video_pad|>",
    ],
    "ernie": [
        "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_START|>",
        "<|VIDEO_END|>",
    ],
    "smolvlm": [
        "<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>",
        "<global-img>", "<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>", "<row_2_col_2>",
    ],
    "gemma": [
        "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>",
        "<image_soft_token>",
    ],
}  # fmt: skip
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2_vl": ("qwen", QWEN, {"patch_size": 14, "spatial_merge_size": 2}),
    "qwen2_5_vl": ("qwen", QWEN, {"patch_size": 14, "tokens_per_second": 2}),
    "qwen3_vl": ("qwen", QWEN, {"patch_size": 16, "spatial_merge_size": 2}),
    "ernie4_5_moe_vl": ("ernie", ERNIE, {"patch_size": 14, "spatial_merge_size": 2}),
    "smolvlm": ("smolvlm", SMOLVLM, {"patch_size": 8, "image_size": 32}),
    "gemma3": ("gemma", GEMMA, {"patch_size": 8, "image_size": 64}),
}
MORE = {"smolvlm": {"scale_factor": 2}, "gemma3": {"mm_tokens_per_image": 16}}


def vision_folder(folder: Path, model_type: str = "qwen2_vl", **tokenizer_config: Any) -> Path:
    """Images are kept small: a picture of at most 56 x 112 pixels, or tiles of 32 x 32."""
    kind, template, tower = KINDS[model_type]
    tokenizer = byte_level()
    if kind == "ernie":
        tokenizer.add_special_tokens(["<|begin_of_sentence|>"])
        tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.add_special_tokens(TOKENS[kind])
    tokenizer.save(str(folder / "tokenizer.json"))
    more = dict(MORE.get(model_type, {}))
    if kind == "ernie":
        more["im_patch_id"] = tokenizer.token_to_id("<|IMAGE_PLACEHOLDER|>")
    write_config(
        folder,
        tokenizer.get_vocab_size(),
        model_type=model_type,
        vision_config=tower,
        hidden_size=64,
        **more,
    )
    if kind == "smolvlm":
        sizes: dict[str, Any] = {"size": {"longest_edge": 64}}
    elif kind == "gemma":
        sizes = {"size": {"height": 64, "width": 64}, "do_pan_and_scan": None}
    else:
        factor = 2 * tower["patch_size"]
        sizes = {"min_pixels": factor * factor, "max_pixels": 8 * factor * factor}
    write_json(folder / "preprocessor_config.json", sizes)
    clips = {} if kind == "smolvlm" else {**sizes, "draw_on_frames": False}
    if model_type == "qwen3_vl":
        clips = {"size": {"shortest_edge": 1024, "longest_edge": 1 << 20}}
    write_json(folder / "video_preprocessor_config.json", clips)
    write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template, **tokenizer_config},
    )
    return folder


def set_template(folder: Path, template: str) -> None:
    """Another chat template for a folder that is there."""
    path = folder / "tokenizer_config.json"
    write_json(path, {**json.loads(path.read_text()), "chat_template": template})
