"""Scripts in the shape of the two examples with pictures on FastDeploy's page run unchanged through
headrace.compat, over the fake engine and on a tiny ERNIE-4.5-VL. The picture comes from a local
server.

HEADRACE_FASTDEPLOY_PAGES may name a folder with the pages themselves (*.md): then their own blocks
about pictures run as well, but for the address of the picture."""

from __future__ import annotations

import http.server
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_core
import pytest
from ernie_vl_folders import ernie_folder
from model_folders import write_json
from vision_folders import vision_folder

from headrace import compat

MODEL = "baidu/ERNIE-4.5-VL-28B-A3B-Paddle"
CHAT = """
from fastdeploy.entrypoints.llm import LLM

llm = LLM(model="baidu/ERNIE-4.5-VL-28B-A3B-Paddle", tensor_parallel_size=1, max_model_len=32768,
          limit_mm_per_prompt={"image": 100}, reasoning_parser="ernie-45-vl")
question = {"type": "text", "text": "How old is it?"}
picture = {"type": "image_url", "image_url": {"url": "https://example.com/picture.jpg"}}
outputs = llm.chat(
    messages=[{"role": "user", "content": [picture, question]}],
    chat_template_kwargs={"enable_thinking": False},
)
"""
GENERATE = """
import io
import requests
from PIL import Image
from fastdeploy.entrypoints.llm import LLM
from fastdeploy.engine.sampling_params import SamplingParams
from fastdeploy.input.ernie4_5_tokenizer import Ernie4_5Tokenizer

PATH = "baidu/ERNIE-4.5-VL-28B-A3B-Paddle"
tokenizer = Ernie4_5Tokenizer.from_pretrained(PATH)
url = "https://example.com/picture.jpg"
picture = {"type": "image_url", "image_url": {"url": url}}
question = {"type": "text", "text": "How old is it?"}
messages = [{"role": "user", "content": [picture, question]}]
prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
images = [Image.open(io.BytesIO(requests.get(url).content))]
llm = LLM(model=PATH, tensor_parallel_size=1, max_model_len=32768,
          limit_mm_per_prompt={"image": 100}, reasoning_parser="ernie-45-vl")
outputs = llm.generate(
    prompts={"prompt": prompt, "multimodal_data": {"image": images, "video": []}},
    sampling_params=SamplingParams(temperature=0.1, max_tokens=6400),
)
"""
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
ADDRESS = re.compile(r"https://[^\"']+\.jpg")


def page_blocks() -> list[str]:
    folder = os.environ.get("HEADRACE_FASTDEPLOY_PAGES")
    pages = sorted(Path(folder).glob("*.md")) if folder else []
    blocks = [code for page in pages for code in FENCE.findall(page.read_text())]
    return [code for code in blocks if "LLM(" in code and "image_url" in code]


SCRIPTS = [CHAT, GENERATE, *page_blocks()]


class Picture(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        from PIL import Image

        out = io.BytesIO()
        Image.radial_gradient("L").resize((112, 56)).convert("RGB").save(out, "JPEG")
        self.send_response(200)
        self.send_header("Content-Length", str(out.tell()))
        self.end_headers()
        self.wfile.write(out.getvalue())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Picture)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/picture.jpg"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def outcome(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Any]]:
    """Runs a script beside MODEL: what its one request gave."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_ALLOWED_MEDIA_DOMAINS", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stand_ins/requests"))
    compat.install()
    names: dict[str, Any] = {"__name__": "__main__"}
    modules = set(sys.modules)

    def run(script: str) -> Any:
        exec(compile(ADDRESS.sub(address, script), "page", "exec"), names)
        (output,) = names["outputs"]
        return output

    yield run
    if "llm" in names:
        names["llm"].close()
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("fastdeploy", "requests"):
            del sys.modules[name]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_script_runs(
    script: str, outcome: Callable[[str], Any], fake_engine: Any, tmp_path: Path
) -> None:
    folder = tmp_path / MODEL
    folder.mkdir(parents=True)
    vision_folder(folder, "ernie4_5_moe_vl")
    answer = "A thought</think>An answer" if "enable_thinking" not in script else "An answer"
    fake_core.script = spoken(folder, answer)
    output = outcome(script)
    assert (output.error_msg, output.outputs.text) == (None, "An answer")
    thought = output.outputs.reasoning_content
    assert thought == (None if "enable_thinking" in script else "A thought")
    assert "Picture 1:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>" in output.prompt
    assert output.num_input_image_tokens == 8
    ((media,),) = fake_engine.submitted_media
    assert (media.height, media.width) == (56, 112)


@pytest.mark.filterwarnings("ignore:.*max_position_embeddings")
@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_script_runs_on_a_model(script: str, outcome: Callable[[str], Any], tmp_path: Path) -> None:
    folder = ernie_folder(tmp_path / MODEL, "ernie4_5_vl_paddle")
    # Its weights are random: every second letter ends what it says.
    write_json(folder / "generation_config.json", {"eos_token_id": list(range(100, 250, 2))})
    output = outcome(script)
    assert output.error_msg is None
    assert output.finished
    assert output.outputs.finish_reason == "stop"
    assert output.outputs.token_ids
    # At most 1024 pixels: 16 x 40, of patches of 4 x 4, four of which become a row.
    assert output.num_input_image_tokens == output.prompt_token_ids.count(250) == 10
    assert "Picture 1:<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>" in output.prompt


def spoken(folder: Path, text: str) -> Any:
    """A script of the fake engine that says a text."""
    from headrace.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_pretrained(folder)
    ids = [*tokenizer.encode(text), 2]
    return lambda prompt, output, seed: ids[len(output)]
