"""Scripts in the shape of DashInfer's page "Offline Inference with Python API" run through
headrace.compat, unchanged but for the model's folder and TargetDevice.CPU.

HEADRACE_DASHINFER_PAGE may name the page itself (a .rst): then its blocks run, too, one by one."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headrace import shipped_model
from headrace.allspark import Engine

SNIPPET = """
collected = []
engine = allspark.Engine()
loader = allspark.HuggingFaceModel(model_local_path, safe_model_name)
(loader.load_model()
    .read_model_config()
    .serialize_to_memory(engine)
    .free_model())
builder = loader.create_reference_runtime_config_builder(
    safe_model_name, TargetDevice.CPU, device_list, max_batch=8)
runtime_cfg = builder.build()
engine.install_model(runtime_cfg)
engine.start_model(safe_model_name)
gen_cfg = loader.create_reference_generation_config_builder(runtime_cfg)
gen_cfg.update({"top_k": 1, "max_length": 40})
status, handle, queue = engine.start_request_text(
    safe_model_name, loader, "User: What is 2 + 3?\\nAssistant:", gen_cfg)
engine.sync_request(safe_model_name, handle)
collected += queue.Get().ids_from_generate
engine.release_request(safe_model_name, handle)
engine.stop_model(safe_model_name)
assert collected
"""
BUILDER = """
from dashinfer.allspark import *
from dashinfer.allspark.engine import *

own = AsModelRuntimeConfigBuilder()
own.model_name("my_model")
own.model_dir("/path/to/model", "model_prefix")
own.compute_unit(TargetDevice.CUDA, [0])
own.max_batch(32)
own.max_length(2048)
own.kv_cache_mode(AsCacheMode.AsCacheQuantU4)
own_config = own.build()
assert own_config.cache_mode == AsCacheMode.AsCacheQuantU4
"""
GENERATION = """
fluent = ASGenerationConfigBuilder()
config = (fluent.do_sample()
          .max_length(512)
          .temperature(0.7)
          .top_k(50)
          .build())
assert config["max_length"] == 512
"""
POLLING = """
tokens = []
status = queue.GenerateStatus()
while (status == GenerateRequestStatus.Init
        or status == GenerateRequestStatus.Generating
        or status == GenerateRequestStatus.ContextFinished):
    elements = queue.Get()
    if elements is not None:
        tokens += elements.ids_from_generate
    status = queue.GenerateStatus()
    if status == GenerateRequestStatus.GenerateFinished:
        break
    if status == GenerateRequestStatus.GenerateInterrupted:
        break
assert tokens and queue.GeneratedLength() == len(tokens)
"""
# What the page's blocks take for granted.
PROLOGUE = f"""
from dashinfer import allspark
from dashinfer.allspark import *
from dashinfer.allspark.engine import *
from dashinfer.allspark._allspark import GenerateRequestStatus

model_local_path = {shipped_model()!r}
safe_model_name = "tiny"
device_list = [0]
"""
REQUEST = """
engine = allspark.Engine()
model_loader = allspark.HuggingFaceModel(model_local_path, safe_model_name)
model_loader.load_model().read_model_config().serialize_to_memory(engine).free_model()
runtime_cfg = model_loader.create_reference_runtime_config_builder(
    safe_model_name, TargetDevice.CPU, device_list, max_batch=8, max_context_length=256).build()
engine.install_model(runtime_cfg)
engine.start_model(safe_model_name)
gen_cfg = model_loader.create_reference_generation_config_builder(runtime_cfg)
gen_cfg.update({"max_length": 64})
status, handle, queue = engine.start_request_text(
    safe_model_name, model_loader, "who are you?", gen_cfg)
assert status == AsStatus.ALLSPARK_SUCCESS
"""
BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:[ \t]+.*\n|[ \t]*\n)+)", re.MULTILINE)


def page_blocks() -> list[str]:
    page = os.environ.get("HEADRACE_DASHINFER_PAGE")
    text = Path(page).read_text(encoding="utf-8") if page else ""
    return [textwrap.dedent(block) for block in BLOCK.findall(text)]


def runnable(blocks: list[str]) -> list[str]:
    """Without lines of output, and with the device that is there where a model is installed."""
    scripts = []
    for block in blocks:
        code = re.sub(r"(?m)^I\d{8} .*$", "", block)
        if "install_model" in code:
            code = code.replace("TargetDevice.CUDA", "TargetDevice.CPU")
        if not code.lstrip().startswith("def "):
            scripts.append(code)
    return scripts


SCRIPTS = [SNIPPET, BUILDER, GENERATION, POLLING, *runnable(page_blocks())]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_script_runs(script: str, tmp_path: Path) -> None:
    needs_request = "queue" in script and "Engine()" not in script
    code = PROLOGUE + (REQUEST if needs_request else "") + script + "\nprint('ran')\n"
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "headrace.compat", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.endswith("ran\n")


def test_the_page_is_found_whole() -> None:
    if not os.environ.get("HEADRACE_DASHINFER_PAGE"):
        pytest.skip("HEADRACE_DASHINFER_PAGE names no page")
    blocks = page_blocks()
    assert len(blocks) == 10
    assert len(runnable(blocks)) == 5


@pytest.mark.parametrize("block", [b for b in page_blocks() if b.lstrip().startswith("def ")])
def test_documented_signatures(block: str) -> None:
    (function,) = ast.parse(textwrap.dedent(block)).body
    assert isinstance(function, ast.FunctionDef)
    documented = [argument.arg for argument in function.args.args]
    assert list(inspect.signature(getattr(Engine, function.name)).parameters) == documented
