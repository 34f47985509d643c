"""Writes tests/golden/lora: adapters saved by PEFT, and what PEFT answers with them in float32.

    python tests/golden/make_lora.py

with peft 0.21.2 beside what make_golden.py needs. expected.json has, for each adapter, the golden
case it adapts, a prompt, its greedy continuation and the log-probability of each token."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
PROMPT = [5, 17, 33, 60, 9, 71, 44, 12, 8, 101, 3]
STEPS = 24
ADAPTERS = {
    "ernie4_5_all": ("ernie4_5", {"target_modules": "all-linear", "r": 4}),
    "qwen2_patterns": (
        "qwen2",
        {
            "target_modules": ["q_proj", "v_proj", "down_proj"],
            "use_rslora": True,
            "r": 8,
            "rank_pattern": {"v_proj": 3},
            "alpha_pattern": {"down_proj": 3},
        },
    ),
}


def answer(model: torch.nn.Module) -> dict:
    ids, logprobs = list(PROMPT), []
    with torch.no_grad():
        for _ in range(STEPS):
            row = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)
            ids.append(int(row.argmax()))
            logprobs.append(float(row[ids[-1]]))
    return {"prompt": PROMPT, "tokens": ids[len(PROMPT) :], "logprobs": logprobs}


def main() -> None:
    torch.manual_seed(0)
    expected = {}
    for name, (case, options) in ADAPTERS.items():
        base = AutoModelForCausalLM.from_pretrained(HERE / case, dtype=torch.float32)
        config = LoraConfig(lora_alpha=16, lora_dropout=0.1, task_type="CAUSAL_LM", **options)
        model = get_peft_model(base, config)
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(parameter, std=0.08)
        folder = HERE / "lora" / name
        model.eval().save_pretrained(folder)
        (folder / "README.md").unlink()
        saved = folder / "adapter_config.json"
        fields = json.loads(saved.read_text()) | {"base_model_name_or_path": case}
        saved.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
        expected[name] = {"case": case, **answer(model)}
    (HERE / "lora/expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
