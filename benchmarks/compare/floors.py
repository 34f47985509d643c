"""What a step must do at least: bytes it must read and operations, from a model's config.

Activations and norms are left out: they stay in the caches."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import make_checkpoint
import vision_checkpoint

# Bytes of a weight with its share of a scale of 2 bytes: Headrace's own groups, of 64 and 32.
LINEAR_BYTES = {"bf16": 2.0, "int8": 1 + 2 / 64, "int4": 0.5 + 2 / 32}
MXFP4_BYTES = 0.5 + 1 / 32
HEAD_BYTES = {"bf16": 2.0, "int8": 1 + 2 / 64, "int4": 1 + 2 / 64}


@dataclass(frozen=True)
class Need:
    """Of one step."""

    bytes: float
    operations: float

    def seconds(self, limits: common.Limits, weights: str) -> float:
        """The floor. Int8 and int4 weights are held against the int8 peak."""
        peak = limits.bf16 or limits.f32
        if weights != "bf16":
            peak = max(peak, limits.int8)
        return max(self.bytes / limits.read, self.operations / peak)


def head_parameters(config: dict) -> int:
    return config["vocab_size"] * config["hidden_size"]


def weight_bytes(config: dict, weights: str, rows: int = 1) -> float:
    """Of the matrices that a step of `rows` rows meets, of experts those that chance sends some row
    to; a tied embedding counts once, as the head. Routers stay float32."""
    head = head_parameters(config)
    linear = common.matmul_parameters(config) - head
    more = 0.0
    if "num_experts" in config:
        top, one = config["num_experts_per_tok"], common.expert_parameters(config)
        kept = MXFP4_BYTES if config["model_type"] == "gpt_oss" else LINEAR_BYTES[weights]
        more = (common.experts_met(config, rows) * kept - top * LINEAR_BYTES[weights]) * one
        router = config["num_experts"] * config["hidden_size"] * config["num_hidden_layers"]
        more += router * (4 - LINEAR_BYTES[weights])
    return linear * LINEAR_BYTES[weights] + head * HEAD_BYTES[weights] + more


def step_need(config: dict, weights: str, rows: int, contexts: list[int], sampled: int) -> Need:
    """A step of `rows` tokens. `contexts`: keys that each attending row reads; its length may be
    less than `rows` where prompt tokens share a pass (give the sequence's length once, then). Each
    has its states read and written once.
    `sampled`: rows that meet the head."""
    head = head_parameters(config)
    linear = common.matmul_parameters(config) - head
    keys = sum(contexts)
    attended = keys if len(contexts) == rows else rows * keys / 2  # causal
    width = config["num_attention_heads"] * config["head_dim"]
    attending = sum(
        not make_checkpoint.keeps_state(config, i) for i in range(config["num_hidden_layers"])
    )
    return Need(
        bytes=weight_bytes(config, weights, rows)
        + keys * common.kv_bytes_per_token(config)
        + 2 * len(contexts) * common.state_bytes(config),
        operations=2.0 * rows * linear + 2.0 * sampled * head + 4.0 * attended * width * attending,
    )


def image_floor(
    config: dict, weights: str, limits: common.Limits, size: tuple[int, int], text: int
) -> float:
    """Seconds to the first token behind an image (height, width) and `text` tokens. The tower's
    matrices are bfloat16 or float32 whatever the decoder's are."""
    rows, columns = vision_checkpoint.grid(config, *size)
    prompt = rows * columns // config["vision_config"]["spatial_merge_size"] ** 2 + 2 + text
    tower = vision_checkpoint.tower_operations(config, *size) / (limits.bf16 or limits.f32)
    return tower + step_need(config, weights, prompt, [prompt], 1).seconds(limits, weights)


def run_floor(
    config: dict, weights: str, limits: common.Limits, requests: list[tuple[int, int]], budget: int
) -> float:
    """Seconds for whole requests (prompt, output) that all come at once: prompts in chunks of
    `budget` tokens, then steps of every request that has tokens left."""
    seconds, left = 0.0, sum(prompt for prompt, _ in requests)
    mean = left / len(requests)
    while left > 0:
        rows = min(left, budget)
        sampled = round(rows / mean)
        need = step_need(config, weights, rows, [round(mean)], max(1, sampled))
        seconds += need.seconds(limits, weights)
        left -= rows
    for step in range(1, max(output for _, output in requests)):
        contexts = [prompt + step for prompt, output in requests if output > step]
        need = step_need(config, weights, len(contexts), contexts, len(contexts))
        seconds += need.seconds(limits, weights)
    return seconds
