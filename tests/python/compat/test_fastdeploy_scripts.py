"""Scripts in the shape of FastDeploy's offline-inference pages run unchanged through
headrace.compat, under the names those pages use: on the shipped ERNIE-4.5 model or, where the name
is that of a model with experts, on a small one of that shape in the Paddle layout.

HEADRACE_FASTDEPLOY_PAGES may name a folder with the pages themselves (*.md): then every Python
block of theirs for text models runs as well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from model_folders import golden_folder

from headrace import shipped_model

CHAT = """
from fastdeploy import LLM, SamplingParams

first = [
    {"role": "system", "content": "I'm a helpful AI assistant."},
    {"role": "user", "content": "What is 3 + 4?"},
]
second = [
    {"role": "system", "content": "I'm a helpful AI assistant."},
    {"role": "user", "content": "法国的首都是哪里？"},
]
messages = [first, second]
sampling_params = SamplingParams(top_p=0.95, max_tokens=6400)
llm = LLM(model="ERNIE-4.5-0.3B", tensor_parallel_size=1, max_model_len=8192)
outputs = llm.chat(messages, sampling_params)
"""
GENERATE = """
from fastdeploy.entrypoints.llm import LLM
from fastdeploy.engine.sampling_params import SamplingParams

prompts = ["User: Count from 3 to 6.\\nAssistant: "]
sampling_params = SamplingParams(top_p=0.95, max_tokens=6400)
llm = LLM(model="baidu/ERNIE-4.5-21B-A3B-Base-Paddle", tensor_parallel_size=1, max_model_len=8192)
outputs = llm.generate(prompts, sampling_params)
"""
TOKENIZER = """
from fastdeploy import LLM, SamplingParams
from fastdeploy.input.ernie4_5_tokenizer import Ernie4_5Tokenizer

tokenizer = Ernie4_5Tokenizer.from_pretrained("ERNIE-4.5-0.3B")
messages = [{"role": "user", "content": "What is 3 + 4?"}]
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
llm = LLM(model="ERNIE-4.5-0.3B", tensor_parallel_size=1, max_model_len=8192)
outputs = llm.generate(prompts={"prompt": prompt}, sampling_params=SamplingParams(max_tokens=64))
"""
# What the pages' loops read, and that it is all there.
EPILOGUE = """
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs.text
    assert output.finished and output.error_code == 200, output.error_msg
    assert isinstance(prompt, (str, dict)) and isinstance(generated_text, str)
    assert output.outputs.token_ids and output.prompt_token_ids
print("ran", len(outputs))
"""
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
NAME = re.compile(r'"((?:baidu/)?ERNIE-[^"/]+)"')


def page_blocks() -> list[str]:
    folder = os.environ.get("HEADRACE_FASTDEPLOY_PAGES")
    pages = sorted(Path(folder).glob("*.md")) if folder else []
    blocks = [code for page in pages for code in FENCE.findall(page.read_text())]
    text_only = [code for code in blocks if "LLM(" in code and "image" not in code]
    # One page was stored without its indentation.
    return [re.sub(r"(?m)^(for output in outputs:\n)(\S.*\n)(\S.*\n)", r"\1    \2    \3", code)
            for code in text_only]  # fmt: skip


SCRIPTS = [CHAT, GENERATE, TOKENIZER, *page_blocks()]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_script_runs(script: str, tmp_path: Path) -> None:
    for name in NAME.findall(script):
        folder = tmp_path / name
        folder.parent.mkdir(exist_ok=True)
        if folder.exists():
            continue
        if "-A3B" in name:
            golden_folder("ernie4_5_moe_paddle", folder)
        else:
            folder.symlink_to(shipped_model())
    (tmp_path / "script.py").write_text(script + EPILOGUE)
    result = subprocess.run(
        [sys.executable, "-m", "headrace.compat", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "ran" in result.stdout
