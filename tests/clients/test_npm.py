"""Packages of npm against headrace serve: openai, and Vercel's AI SDK."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("HEADRACE_NPM", ""))


def told(package: str, script: str, url: str) -> dict[str, Any]:
    """What a script was told that asks by the package."""
    if shutil.which("node") is None:
        pytest.skip("node is missing")
    if not (FOLDER / "node_modules" / package).is_dir():
        pytest.skip(f"HEADRACE_NPM doesn't name a folder with npm's package {package}")
    copy = FOLDER / script  # node looks for packages beside it
    copy.write_text(Path(__file__).with_name(script).read_text())
    done = subprocess.run(
        ["node", str(copy), url], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_openai(url: str) -> None:
    said = told("openai", "openai.mjs", url)
    assert "19" in said["text"]
    assert said["streamed"] == said["text"] == said["response"]
    assert said["usage"]["completion_tokens"] > 0
    assert said["called"]["name"] == "add"
    assert 0 <= json.loads(said["called"]["arguments"])["a"] <= 9
    assert said["calledInStream"]["arguments"] == said["called"]["arguments"]
    assert 0 <= json.loads(said["parsed"])["a"] <= 9
    assert said["models"] == ["tiny"]
    assert said["errors"] == {
        "missing": ["NotFoundError", 404, "model_not_found", "model"],
        "wrong": ["BadRequestError", 400, "invalid_value", "temperature"],
    }
    assert said["pieces"] == 3


def test_the_ai_sdk(url: str) -> None:
    said = told("@ai-sdk/openai-compatible", "ai_sdk.mjs", url)
    assert "19" in said["text"]
    assert said["streamed"] == said["text"]
    assert said["finishReason"] == "stop"
    assert said["streamUsage"]["outputTokens"] == said["usage"]["outputTokens"] > 0
    called = said["called"]
    assert called["name"] == "add"
    assert called["output"] == called["input"]["a"] + 1
    assert said["calledInStream"] == called
    assert 0 <= said["object"]["a"] <= 9
    assert 0 <= said["object"]["kinds"]["b"] <= 9
    assert said["streamedObject"] == said["object"]
    assert said["errors"] == {
        "missing": ["AI_APICallError", 404, "model"],
        "wrong": ["AI_APICallError", 400, "temperature"],
    }
