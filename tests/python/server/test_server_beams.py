"""use_beam_search over HTTP: LLM.beam_search's outputs, as OpenAI's objects."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace import LLM, AsyncLLM, BeamSearchParams, shipped_model
from headrace.batch.answers import LocalAnswerer
from headrace.batch.local_engine import LocalEngine
from serving import PlayedLLM, serving

PROMPT = "User: What is 12 + 7?\nAssistant: "
ASK = [{"role": "user", "content": "What is 12 + 7?"}]
SEARCH = {"model": "m", "use_beam_search": True, "n": 3, "max_tokens": 12}
OPTIONS: dict[str, Any] = {"num_threads": 1, "kv_cache_bytes": 16 << 20}


@pytest.fixture(scope="module")
def llm() -> AsyncLLM:
    return AsyncLLM(shipped_model(), **OPTIONS)


@pytest.fixture(scope="module")
def url(llm: AsyncLLM) -> Iterator[str]:
    with serving(llm) as address:
        yield address


@pytest.fixture(scope="module")
def expected() -> list[tuple[list[int], str | None]]:
    """Ids and ends."""
    with LLM(shipped_model(), **OPTIONS) as llm:
        (found,) = llm.beam_search(PROMPT, BeamSearchParams(3, 12, length_penalty=0.5))
    return [
        (one.tokens[len(one.tokens) - len(one.logprobs) :], one.finish_reason)
        for one in found.sequences
    ]


def asked(url: str, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{url}/v1/{path}", json={**SEARCH, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_completions(url: str, llm: AsyncLLM, expected: Any) -> None:
    body = {"prompt": PROMPT, "length_penalty": 0.5, "return_token_ids": True, "seed": 3}
    answer = asked(url, "completions", **body)
    choices = answer["choices"]
    assert [(one["token_ids"], one["finish_reason"]) for one in choices] == expected
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    for choice in choices:
        assert choice["text"] == tokenizer.decode(choice["token_ids"], True)
        assert choice["logprobs"] is None
    assert "19" in choices[0]["text"]
    assert answer["usage"]["prompt_tokens"] == len(tokenizer.encode(PROMPT))
    assert answer["usage"]["completion_tokens"] == sum(len(ids) for ids, _ in expected)
    both = asked(url, "completions", **{**body, "prompt": [PROMPT, "Hello"], "echo": True})
    assert [one["token_ids"] for one in both["choices"][:3]] == [ids for ids, _ in expected]
    assert [one["text"][:5] for one in both["choices"]] == ["User:"] * 3 + ["Hello"] * 3


def test_chats_and_logprobs(url: str) -> None:
    answer = asked(url, "chat/completions", messages=ASK, logprobs=True, top_logprobs=2)
    assert [one["index"] for one in answer["choices"]] == [0, 1, 2]
    totals = []
    for choice in answer["choices"]:
        rows = choice["logprobs"]["content"]
        text = "".join(row["token"] for row in rows if row["token"] != "</s>")
        assert text == choice["message"]["content"]
        assert {len(row["top_logprobs"]) for row in rows} == {2}
        totals.append(sum(row["logprob"] for row in rows))
    assert totals == sorted(totals, reverse=True)
    assert "19" in answer["choices"][0]["message"]["content"]


def test_what_fails(url: str) -> None:
    for status, body, message in (
        (400, {"prompt": [[5] * 5000]}, "maximum context length"),
        (400, {"prompt": "a", "stream": True}, "stream doesn't go with use_beam_search"),
        (400, {"prompt": "a", "max_tokens": 9000}, "takes at most 16384"),
    ):
        answer = httpx.post(f"{url}/v1/completions", json={**SEARCH, **body}, timeout=60)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_a_client_that_leaves_ends_its_search(url: str, llm: AsyncLLM) -> None:
    more = {"prompt": PROMPT, "n": 2, "max_tokens": 3000, "ignore_eos": True}
    body = json.dumps({**SEARCH, **more}).encode()
    host, port = url.removeprefix("http://").split(":")
    before = llm.stats().generated_tokens
    deadline = time.monotonic() + 60
    with socket.create_connection((host, int(port))) as client:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n"
        client.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
        while llm.stats().generated_tokens < before + 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert llm._runner.streams()
    while llm._runner.streams() or llm.request_ids():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert llm.stats().generated_tokens < before + 6000


def test_rows_of_batches(llm: AsyncLLM, expected: Any) -> None:
    async def answer() -> Any:
        body = {**SEARCH, "prompt": PROMPT, "length_penalty": 0.5, "return_token_ids": True}
        return await LocalAnswerer(LocalEngine(llm), ["m"]).answer("/v1/completions", body)

    found = asyncio.run(answer())
    assert found.status == 200, found.body
    assert [one["token_ids"] for one in found.body["choices"]] == [ids for ids, _ in expected]


def test_other_requests_are_sampled() -> None:
    llm = PlayedLLM()
    with serving(llm) as url:
        body = {"model": "m", "prompt": "a", "use_beam_search": False, "length_penalty": 1}
        assert httpx.post(f"{url}/v1/completions", json=body).status_code == 200
    assert len(llm.calls) == 1
