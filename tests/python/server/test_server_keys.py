"""Who may call what, what an admin may do, and what the log says."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from headrace.server import ModelRegistry, ServerConfig
from serving import PlayedLLM, serving

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "my secret"}]}
CHAT = "/v1/chat/completions"
KEYS: dict[str, Any] = {"api_keys": ("key-one", "key-two"), "admin_keys": ("key-admin",)}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("key-one"), 200),
        (bearer("key-two"), 200),
        (bearer("key-admin"), 200),
        ({"x-api-key": "key-one"}, 200),
        ({"authorization": "bearer key-one"}, 200),
        (bearer("key-on"), 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Basic key-one"}, 401),
        ({"x-api-key": "wrong"}, 401),
    ],
)
def test_keys(headers: dict[str, str], status: int) -> None:
    with serving(**KEYS) as url:
        answers = [
            httpx.post(url + CHAT, json=BODY, headers=headers),
            httpx.get(f"{url}/v1/models", headers=headers),
            httpx.get(f"{url}/metrics", headers=headers),
            httpx.get(f"{url}/api/tags", headers=headers),
        ]
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(url).status_code == 200
    for answer in answers:
        assert answer.status_code == status
        assert "key-" not in answer.text
        assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)


def test_only_an_admin_loads() -> None:
    body = {"model": "other"}
    for config, key, status in (
        ({}, "any", 403),
        (KEYS, "key-one", 401),
        (KEYS, "key-admin", 200),
        ({"admin_keys": ("key-admin",)}, "key-admin", 200),
        ({"admin_keys": ("key-admin",)}, "key", 401),
    ):
        with serving(**config) as url:
            answer = httpx.post(f"{url}/v1/models/load", json=body, headers=bearer(key))
        assert answer.status_code == status, answer.text


def test_models_come_and_go() -> None:
    with serving(**KEYS) as url, httpx.Client(base_url=url, headers=bearer("key-admin")) as api:
        loaded = api.post("/v1/models/load", json={"model": "a/b", "served_model_name": "c"})
        assert loaded.json()["id"] == "c"
        assert [card["id"] for card in api.get("/v1/models").json()["data"]] == ["m", "c"]
        answer = api.post(CHAT, json={**BODY, "model": "c"}).json()
        assert answer["choices"][0]["message"]["content"] == "I am a/b"
        for body, status in (
            ({"model": "a/b", "served_model_name": "c"}, 409),
            ({"model": "a/broken"}, 400),
            ({"model": "a/b", "dtyp": "float32"}, 400),
            ({}, 400),
        ):
            assert api.post("/v1/models/load", json=body).status_code == status
        assert api.post("/v1/models/unload", json={"model": "c"}).status_code == 200
        assert api.post("/v1/models/unload", json={"model": "c"}).status_code == 404
        assert api.post(CHAT, json={**BODY, "model": "c"}).status_code == 404


def test_a_model_leaves_though_nobody_waits_for_it() -> None:
    llm = PlayedLLM()
    llm.held = True
    with serving(llm, **KEYS) as url, ThreadPoolExecutor(1) as threads:
        running = threads.submit(httpx.post, url + CHAT, json=BODY, headers=bearer("key-one"))
        while not llm.running:
            time.sleep(0.01)
        admin = bearer("key-admin")
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/models/unload", json={"model": "m"}, headers=admin, timeout=0.5)
        assert not llm.closed
        llm.held = False
        assert running.result().status_code == 200
        deadline = time.monotonic() + 60
        while not llm.closed:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_models_that_leave_end_with_the_server() -> None:
    llm = PlayedLLM()

    async def run() -> None:
        async def load(**_: Any) -> PlayedLLM:
            return llm

        registry = ModelRegistry(load)
        with (await registry.load("m")).used():
            leaving = asyncio.ensure_future(registry.unload("m"))
            await asyncio.sleep(0)
            await registry.close()
            assert llm.closed
        await leaving

    asyncio.run(run())


def test_adapters_are_models() -> None:
    llm = PlayedLLM()
    with (
        serving(llm, **KEYS) as url,
        httpx.Client(base_url=url, headers=bearer("key-admin")) as api,
    ):
        made = api.post("/v1/load_lora_adapter", json={"lora_name": "poet", "lora_path": "/p"})
        assert made.status_code == 200
        assert api.get("/v1/models/poet").json()["parent"] == "m"
        assert api.post(CHAT, json={**BODY, "model": "poet"}).json()["model"] == "poet"
        assert (llm.calls[0]["lora_request"].lora_path, llm.calls[0]["params"].n) == ("/p", 1)
        assert api.post("/v1/unload_lora_adapter", json={"lora_name": "m"}).status_code == 400
        assert api.post("/v1/unload_lora_adapter", json={"lora_name": "poet"}).status_code == 200
        assert api.post(CHAT, json={**BODY, "model": "poet"}).status_code == 404


@pytest.mark.parametrize("asked", [False, True])
def test_what_the_log_says(asked: bool, caplog: pytest.LogCaptureFixture) -> None:
    llm = PlayedLLM(error=(400, "no: 'my secret'"))
    with caplog.at_level(logging.DEBUG), serving(llm, log_requests=asked, **KEYS) as url:
        headers = {**bearer("key-one"), "x-request-id": "id-7"}
        httpx.post(f"{url}{CHAT}?key=key-one", json=BODY, headers=headers)
        httpx.get(f"{url}/a%0Ab", headers=bearer("key-wrong"))
        llm.error = None
        llm.pieces = [KeyError("my secret")]  # a bug
        failed = httpx.post(url + CHAT, json=BODY, headers=headers)
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal_error")
    own = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("headrace")
    )
    assert "id-7 POST /v1/chat/completions 400" in own
    assert "KeyError in" in own
    assert r"GET /a\nb 404" in own
    assert "key-" not in own
    assert ("my secret" in own) == asked


def test_metrics() -> None:
    with serving() as url:
        httpx.post(url + CHAT, json={**BODY, "stream": True})
        httpx.get(f"{url}/never/heard/of")
        text = httpx.get(f"{url}/metrics").text
    assert 'headrace_http_requests_total{path="/v1/chat/completions",status="200"} 1.0' in text
    assert 'headrace_http_requests_total{path="other",status="404"} 1.0' in text
    assert 'headrace_tokens_total{kind="generated",model="m"} 3.0' in text
    assert 'headrace_time_to_first_token_seconds_count{model="m"} 1.0' in text
    assert 'headrace_running_requests{model="m"} 0.0' in text
    assert "never" not in text


@pytest.mark.parametrize("key", ["", " key", "key\n", "two words", "schlüssel"])
def test_a_key_that_no_header_can_bring_is_refused(key: str) -> None:
    for name in ("api_keys", "admin_keys"):
        with pytest.raises(ValueError, match="visible ASCII"):
            ServerConfig(**{name: (key,)})


def test_the_api_describes_itself() -> None:
    """To anybody, without anything from another host, and with nothing that isn't there."""
    with serving(**KEYS) as url:
        document = httpx.get(f"{url}/openapi.json").json()
        shown = httpx.get(f"{url}/docs")
        assert document["openapi"] == "3.1.0"
        paths = document["paths"]
        assert paths[CHAT]["post"]["requestBody"]["content"].keys() == {"application/json"}
        assert "multipart/form-data" in paths["/v1/files"]["post"]["requestBody"]["content"]
        (name,) = paths["/v1/models/{name}"]["get"]["parameters"]
        assert (name["name"], name["in"]) == ("name", "path")
        assert "security" not in paths["/health"]["get"]
        assert "security" in paths[CHAT]["post"]
        for path, methods in paths.items():
            assert path in shown.text
            for method in methods:
                answer = httpx.request(method, url + path.replace("{", "").replace("}", ""))
                assert answer.status_code not in (404, 405) or "{" in path, (method, path)
    assert shown.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    assert "http" not in shown.text.replace("html", "")
