"""/v1/embeddings with the openai package, /v1/rerank, /v1/score and ollama's, over real models."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from embedding_folders import add_modules, reranker_folder
from model_folders import golden_folder

from headrace import LLM, AsyncLLM
from serving import serving

OPTIONS: dict[str, Any] = {"kv_cache_bytes": 4 << 20, "max_model_len": 512, "num_threads": 1}
TEXTS = ["Hello there", "One more text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = golden_folder("qwen3", tmp_path_factory.mktemp("embedding") / "m")
    return add_modules(made, prompts={"query": "Query: "})


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[float]]:
    with LLM(str(folder), **OPTIONS) as llm:
        return [output.outputs.embedding for output in llm.embed(TEXTS, use_tqdm=False)]


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(AsyncLLM(str(folder), **OPTIONS)) as address:
        yield address


@pytest.fixture
def api(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


def post(url: str, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_embeddings(api: openai.OpenAI, expected: list[list[float]]) -> None:
    for encoding in ("float", "base64"):
        answer = api.embeddings.create(model="m", input=TEXTS, encoding_format=encoding)  # type: ignore[call-overload]
        assert [item.index for item in answer.data] == [0, 1]
        if encoding == "float":
            assert [item.embedding for item in answer.data] == expected
        assert answer.model == "m"
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == 11 + 13
    # By default the package asks for base64 and decodes it.
    answer = api.embeddings.create(model="m", input=TEXTS[0])
    assert answer.data[0].embedding == pytest.approx(expected[0], abs=0)
    short = api.embeddings.create(model="m", input=TEXTS[0], dimensions=8).data[0].embedding
    assert len(short) == 8
    assert sum(x * x for x in short) == pytest.approx(1, abs=1e-5)


def test_token_ids(api: openai.OpenAI) -> None:
    one = api.embeddings.create(model="m", input=[5, 6, 7])
    assert (len(one.data), one.usage.prompt_tokens) == (1, 3)
    two = api.embeddings.create(model="m", input=[[5, 6, 7], [8]])
    assert two.data[0].embedding == one.data[0].embedding
    assert two.usage.total_tokens == 4


def test_ollama_s_paths(url: str, expected: list[list[float]]) -> None:
    status, answer = post(url, "/api/embed", {"model": "m", "input": TEXTS, "keep_alive": -1})
    assert (status, answer["model"], answer["prompt_eval_count"]) == (200, "m", 11 + 13)
    assert answer["embeddings"] == expected
    assert answer["total_duration"] > 0
    assert post(url, "/api/embed", {"input": TEXTS[0]})[1]["embeddings"] == expected[:1]
    assert len(post(url, "/api/embed", {"input": "a", "dimensions": 8})[1]["embeddings"][0]) == 8
    assert post(url, "/api/embed", {"input": []})[1]["embeddings"] == []
    assert post(url, "/api/embeddings", {"prompt": TEXTS[1]})[1] == {"embedding": expected[1]}
    assert post(url, "/api/embeddings", {"prompt": ""})[1] == {"embedding": []}
    status, cut = post(url, "/api/embed", {"input": "x" * 600})
    assert (status, cut["prompt_eval_count"]) == (200, OPTIONS["max_model_len"])
    status, answer = post(url, "/api/embed", {"input": "x" * 600, "truncate": False})
    assert (status, "600 tokens" in answer["error"]) == (400, True)


def test_inputs_are_cut(url: str, expected: list[list[float]]) -> None:
    for given in (TEXTS[0] + " and more", list(TEXTS[0].encode()) * 2):
        body = {"input": given, "truncate_prompt_tokens": 11}
        status, answer = post(url, "/v1/embeddings", body)
        assert (status, answer["usage"]["prompt_tokens"]) == (200, 11)
        if isinstance(given, str):
            assert answer["data"][0]["embedding"] == expected[0]
    cut = {"text_1": TEXTS[0], "text_2": TEXTS[0] + " and more", "truncate_prompt_tokens": 11}
    assert post(url, "/v1/score", cut)[1]["usage"]["prompt_tokens"] == 2 * 11
    for wrong in (0, -2, 513):
        status, answer = post(
            url, "/v1/embeddings", {"input": "a", "truncate_prompt_tokens": wrong}
        )
        assert (status, "truncate_prompt_tokens" in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimension": 4}, "dimension"),
        ({"input": "a", "temperature": 0}, "temperature"),
    ],
)
def test_bad_bodies(url: str, body: dict[str, Any], param: str) -> None:
    status, answer = post(url, "/v1/embeddings", body)
    assert status == 400
    assert answer["error"]["param"] == param


def test_what_the_engine_refuses(api: openai.OpenAI, url: str) -> None:
    for given, message in (
        ({"input": ""}, "empty"),
        ({"input": "x" * 600}, "600 tokens"),
        ({"input": "a", "dimensions": 1000}, "dimensions is 1000"),
        ({"input": [999]}, "999"),
        ({"input": [10**30]}, "no token id"),
        ({"input": ["a", "b", ""]}, "entry 2: the input is empty"),
    ):
        with pytest.raises(openai.BadRequestError, match=message):
            api.embeddings.create(model="m", **given)  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError):
        api.embeddings.create(model="other", input="a")
    status, answer = post(url, "/v1/embeddings", {"input": "a", "prompt_name": "x"})
    assert (status, "query" in answer["error"]["message"]) == (400, True)


def test_scores_of_embeddings(url: str) -> None:
    body = {"text_1": "One", "text_2": TEXTS}
    status, answer = post(url, "/v1/score", body)
    assert status == 200
    assert answer["usage"]["prompt_tokens"] > 0
    assert post(url, "/score", body) == (200, answer)
    # A score is the cosine of embeddings, the query's with the model's own prompt.
    asked = [{"input": "One", "prompt_name": "query"}, {"input": TEXTS}]
    (first,), others = (
        [item["embedding"] for item in post(url, "/v1/embeddings", one)[1]["data"]] for one in asked
    )
    expected = [sum(map(float.__mul__, first, other)) for other in others]
    assert [item["score"] for item in answer["data"]] == pytest.approx(expected, abs=1e-4)
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert all(-1 <= item["score"] <= 1 for item in answer["data"])
    pairs = {"text_1": ["One", "One"], "text_2": TEXTS}
    assert post(url, "/v1/score", pairs)[1]["data"] == answer["data"]
    for wrong, param in (
        ({"text_1": ["a"], "text_2": TEXTS}, "text_1"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": "a", "text_2": [1]}, "text_2"),
    ):
        status, answer = post(url, "/v1/score", wrong)
        assert (status, answer["error"]["param"]) == (400, param)


def test_rerank(tmp_path: Path) -> None:
    with serving(AsyncLLM(str(reranker_folder(tmp_path / "m")), **OPTIONS)) as url:
        body = {"query": "One?", "documents": ["One.", "Two.", "Three."], "top_n": 2}
        status, answer = post(url, "/v1/rerank", body)
        assert status == 200
        scores = [result["relevance_score"] for result in answer["results"]]
        assert len(scores) == 2
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score < 1 for score in scores)
        for result in answer["results"]:
            assert result["document"]["text"] == body["documents"][result["index"]]  # type: ignore[index]
        best = [result["index"] for result in answer["results"]]
        pairs = {"text_1": body["query"], "text_2": body["documents"]}
        alone = [item["score"] for item in post(url, "/score", pairs)[1]["data"]]
        assert scores == [alone[place] for place in best] == sorted(alone, reverse=True)[:2]
        for path in ("/rerank", "/v2/rerank"):
            other = post(url, path, body)[1]
            assert (other["results"], other["usage"]) == (answer["results"], answer["usage"])
        long = {**body, "documents": ["b" * 600]}
        assert post(url, "/rerank", long)[0] == 400
        status, answer = post(url, "/rerank", {**long, "truncate_prompt_tokens": -1})
        assert (status, answer["usage"]["prompt_tokens"]) == (200, OPTIONS["max_model_len"])
        status, answer = post(url, "/rerank", {**long, "truncate_prompt_tokens": 5})
        assert (status, "around query" in answer["error"]["message"]) == (400, True)
        bare = post(url, "/v1/rerank", {**body, "return_documents": False})[1]
        assert "document" not in bare["results"][0]
        for wrong, param in (
            ({**body, "top_n": 0}, "top_n"),
            ({**body, "query": ["a"]}, "query"),
            ({**body, "documents": "a"}, "documents"),
        ):
            status, answer = post(url, "/v1/rerank", wrong)
            assert (status, answer["error"]["param"]) == (400, param)
