"""The openai package of npm against headrace serve."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("client.mjs")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
def test_the_openai_package_of_npm(url: str, npm: Path) -> None:
    script = npm / SCRIPT.name  # node looks for packages beside it
    script.write_text(SCRIPT.read_text())
    done = subprocess.run(
        ["node", str(script), url], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
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
