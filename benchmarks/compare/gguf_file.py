"""Writes a checkpoint of make_checkpoint.py as a GGUF file; needs the `gguf` package.

python gguf_file.py FOLDER FILE bf16|int8|int4    (BF16, Q8_0, Q4_0; the head Q8_0 with int4)

Of gpt-oss all as it is: MXFP4 and BF16."""

import json
import re
import struct
import sys
from pathlib import Path

import gguf
import gguf_gpt_oss
import numpy as np

KINDS = {
    "bf16": gguf.GGMLQuantizationType.BF16,
    "int8": gguf.GGMLQuantizationType.Q8_0,
    "int4": gguf.GGMLQuantizationType.Q4_0,
}
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OF_STATES = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
ARCHITECTURES = {
    "qwen2": "qwen2",
    "qwen3_moe": "qwen3moe",
    "qwen3_5_text": "qwen35",
    "gpt_oss": "gpt-oss",
    "llama": "llama",
    "ernie4_5": "ernie4_5",
}
EXPERT = re.compile(r"(.*\.mlp\.)experts\.(\d+)\.(.*)")


def gguf_name(name: str, architecture: str = "") -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    if rest in OF_STATES:
        return f"blk.{layer}.{OF_STATES[rest]}"
    module, _, kind = rest.rpartition(".")
    if architecture == "qwen35" and module == "post_attention_layernorm":
        return f"blk.{layer}.post_attention_norm.{kind}"
    return f"blk.{layer}.{NAMES[module]}.{kind}"


def as_stored(name: str, numbers: np.ndarray, architecture: str) -> np.ndarray:
    """What a file of the architecture has in place of the checkpoint's numbers."""
    if name.endswith("A_log"):
        return -np.exp(numbers)
    if name.endswith("conv1d.weight"):
        return numbers[:, 0]
    if architecture == "qwen35" and "norm" in name and "linear_attn.norm" not in name:
        return numbers + 1
    return numbers


def tensors(file: Path, experts: int, architecture: str):
    """Name and float32 numbers of each tensor; a layer's experts as one, [experts, n, k]."""
    with file.open("rb") as data:
        header = json.loads(data.read(struct.unpack("<Q", data.read(8))[0]))
        begin = data.tell()
        stacks: dict[str, list[np.ndarray]] = {}
        for name, entry in header.items():
            data.seek(begin + entry["data_offsets"][0])
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            bits = np.frombuffer(data.read(size), np.uint16).astype(np.uint32) << 16
            numbers = bits.view(np.float32).reshape(entry["shape"])
            expert = EXPERT.fullmatch(name)
            if expert is None:
                stored = as_stored(name, numbers, architecture)
                yield gguf_name(name, architecture), stored
                continue
            stack = gguf_name(expert[1] + expert[3]).replace(".weight", "_exps.weight")
            stacks.setdefault(stack, []).append(numbers)
            if len(stacks[stack]) == experts:
                yield stack, np.stack(stacks.pop(stack))


def describe_states(writer: gguf.GGUFWriter, config: dict) -> None:
    heads, wide = config["linear_num_value_heads"], config["linear_value_head_dim"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * wide)
    writer.add_full_attention_interval(config["full_attention_interval"])
    writer.add_rope_dimension_sections([*config["rope_parameters"]["mrope_section"], 0])


def describe(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    partial = config.get("rope_parameters", {}).get("partial_rotary_factor", 1)
    writer.add_rope_dimension_count(int(config["head_dim"] * partial))
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    experts = config.get("num_experts", config.get("num_local_experts", 0))
    if experts:
        width = config.get("moe_intermediate_size", config["intermediate_size"])
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(width)
    if "linear_num_value_heads" in config:
        describe_states(writer, config)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
    writer.add_token_types([1] * config["vocab_size"])
    writer.add_token_merges(["t 1"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def as_kinds(file: Path, config: dict, architecture: str, weights: str):
    """Name, contents as GGUF stores them, and kind of each tensor."""
    for name, numbers in tensors(file, config.get("num_experts", 0), architecture):
        kind = KINDS[weights]
        if numbers.ndim == 1 or "gate_inp" in name or "conv1d" in name:
            kind = gguf.GGMLQuantizationType.F32
        elif weights == "int4" and name in ("token_embd.weight", "output.weight"):
            kind = KINDS["int8"]
        yield name, gguf.quants.quantize(numbers, kind), kind


def main() -> None:
    folder, file, weights = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, architecture)
    describe(writer, config)
    source = folder / "model.safetensors"
    if architecture == "gpt-oss":
        gguf_gpt_oss.describe(writer, config)
        stored = gguf_gpt_oss.tensors(source)
    else:
        stored = as_kinds(source, config, architecture, weights)
    for name, contents, kind in stored:
        writer.add_tensor(name, contents, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
