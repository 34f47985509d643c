"""What adapters cost: seconds per decode step, and per prefill, with 0, 1 and 4 of them.

    python benchmarks/lora.py --shape qwen2-0.5b --rank 16 --requests 4

The base model alone has the speed that merged weights have. Every run is compared with one of the
base model just before it: the machine's speed changes within minutes."""

import argparse
import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import common
from headrace import LLM, LoRARequest, SamplingParams

ADAPTERS = (0, 1, 4)


def modules(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """(out, in) of the linears of a layer."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    return {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }


def write_adapter(folder: Path, config: dict[str, Any], rank: int) -> None:
    """Zeros on every linear, in bfloat16: time does not depend on the numbers."""
    folder.mkdir(parents=True)
    names = [name.rpartition(".")[2] for name in modules(config)]
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": names})
    )
    header, end = {}, 0
    for layer in range(config["num_hidden_layers"]):
        for name, (n, k) in modules(config).items():
            for part, shape in (("A", [rank, k]), ("B", [n, rank])):
                begin, end = end, end + 2 * shape[0] * shape[1]
                key = f"base_model.model.model.layers.{layer}.{name}.lora_{part}.weight"
                header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with (folder / "adapter_model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def run(
    llm: LLM, prompts: list[list[int]], output: int, loras: list[LoRARequest | None]
) -> tuple[float, float]:
    """Seconds to the last first token, and per later step."""
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    llm.clear_prefix_cache()
    results = llm.generate(prompts, params, use_tqdm=False, lora_request=loras)
    first, whole = common.model_seconds(results)
    return first, (whole - first) / (output - 1)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    args: argparse.Namespace = parser.parse_args()
    folder, config = common.checkpoint(args)
    rng = random.Random(0)
    ids = [
        [rng.randrange(3, config["vocab_size"]) for _ in range(args.prompt)]
        for _ in range(args.requests)
    ]
    with tempfile.TemporaryDirectory() as place, LLM(
        str(folder), num_threads=args.threads, max_num_batched_tokens=512, enable_lora=True,
        max_loras=max(ADAPTERS), max_lora_rank=args.rank,
        max_model_len=args.prompt + args.output + 64,
    ) as llm:  # fmt: skip
        loras: list[LoRARequest] = []
        for number in range(1, max(ADAPTERS) + 1):
            write_adapter(Path(place) / str(number), config, args.rank)
            loras.append(LoRARequest(f"a{number}", number, str(Path(place) / str(number))))
        none: list[LoRARequest | None] = [None] * args.requests
        for count in ADAPTERS:
            chosen = [loras[i % count] if count else None for i in range(args.requests)]
            run(llm, ids, args.output, chosen)  # loads them
            prefill, decode = [], []
            for _ in range(args.repeats):
                base = run(llm, ids, args.output, none)
                own = run(llm, ids, args.output, chosen)
                prefill.append(own[0] / base[0])
                decode.append(own[1] / base[1])
            common.report(
                shape=args.shape,
                adapters=count,
                rank=args.rank,
                requests=args.requests,
                prefill_to_base=round(common.median(prefill), 3),
                step_to_base=round(common.median(decode), 3),
            )


if __name__ == "__main__":
    main()
