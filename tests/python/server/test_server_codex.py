"""Codex CLI, as npm has it, against the server: it runs a command that the model asks for, and
ends with the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from serving import PlayedLLM, serving

CODEX = Path(os.environ.get("HEADRACE_NPM", "")) / "node_modules/.bin/codex"
CALL = {"name": "exec_command", "arguments": json.dumps({"cmd": "echo six times seven"})}


class CallsOnce(PlayedLLM):
    """Asks for a command first, and answers then."""

    async def _run(self, call: dict[str, Any]) -> AsyncIterator[Any]:
        asked = any(message["role"] == "tool" for message in call["messages"])
        first = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": CALL}]}
        self.pieces = ["It is ", "42."] if asked else [first]
        async for update in super()._run(call):
            yield update


@pytest.mark.skipif(not CODEX.is_file(), reason="HEADRACE_NPM names no folder with @openai/codex")
def test_codex_runs_to_its_end(tmp_path: Path) -> None:
    llm = CallsOnce()
    nowhere = "http://127.0.0.1:9"  # the vendor's own hosts are not asked
    own = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path), "OWN_KEY": "any"}
    proxies = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1"}
    with serving(llm) as url:
        provider = f'{{name="own",base_url="{url}/v1",env_key="OWN_KEY",wire_api="responses"}}'
        command = [str(CODEX), "exec", "--skip-git-repo-check", "--json", "-C", str(tmp_path)]
        command += ["--dangerously-bypass-approvals-and-sandbox"]
        for setting in ('model="m"', 'model_provider="own"', f"model_providers.own={provider}"):
            command += ["-c", setting]
        done = subprocess.run(
            [*command, "What is six times seven?"],
            env={**os.environ, **own, **proxies},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    items = [event["item"] for event in said if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["It is 42."]
    (result,) = [m for m in llm.calls[-1]["messages"] if m["role"] == "tool"]
    assert "six times seven" in str(result["content"])
    assert said[-1]["type"] == "turn.completed"
