"""Bodies of /v1/embeddings (OpenAI's), /v1/rerank (Jina's and Cohere's) and /v1/score (vLLM's)."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.llm.pooling.outputs import EmbeddingRequestOutput, ScoringRequestOutput
from headrace.protocol.body import Body
from headrace.protocol.completions import read_prompts
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

_MOST_DOCUMENTS = 2048


@dataclass(slots=True)
class EmbeddingRequest:
    """inputs: texts, or lists of token ids. as_base64: embeddings are little-endian float32 in
    base64. prompt_name, truncate_prompt_tokens: as in LLM.embed."""

    model: str | None
    inputs: list[str | list[int]]
    as_base64: bool
    dimensions: int | None
    prompt_name: str | None
    truncate_prompt_tokens: int | None = None


@dataclass(slots=True)
class RerankRequest:
    """query: one for all documents, or one for each. top_n: only the best so many.
    truncate_prompt_tokens: as in LLM.embed."""

    model: str | None
    query: str | list[str]
    documents: list[str]
    instruction: str | None = None
    top_n: int | None = None
    return_documents: bool = True
    truncate_prompt_tokens: int | None = None


def read_embedding(value: Any) -> EmbeddingRequest:
    """The request that a parsed JSON body describes. Raises ProtocolError."""
    body = Body(value)
    inputs = read_prompts(body.required("input"), "input")
    encoding = body.choice("encoding_format", ("float", "base64"))
    request = EmbeddingRequest(
        body.text("model"),
        inputs,
        encoding == "base64",
        read_positive(body, "dimensions"),
        body.text("prompt_name"),
        body.integer("truncate_prompt_tokens"),
    )
    body.text("user")  # for the caller's own records
    body.finish()
    return request


def read_rerank(value: Any) -> RerankRequest:
    """The same for /v1/rerank."""
    body = Body(value)
    query = body.required("query")
    if not isinstance(query, str):
        raise ProtocolError(f"query must be a string, got {quoted(query)}", "query", "invalid_type")
    request = RerankRequest(
        body.text("model"),
        query,
        _texts(body.required("documents"), "documents"),
        body.text("instruction"),
        read_positive(body, "top_n"),
        body.flag("return_documents") is not False,
        body.integer("truncate_prompt_tokens"),
    )
    body.finish()
    return request


def read_score(value: Any) -> RerankRequest:
    """The same for /v1/score: text_1 is the query, or one for each of text_2."""
    body = Body(value)
    first, second = body.required("text_1"), body.required("text_2")
    documents = _texts([second] if isinstance(second, str) else second, "text_2")
    query = first if isinstance(first, str) else _texts(first, "text_1")
    if not isinstance(query, str) and len(query) != len(documents):
        raise ProtocolError(
            f"text_1 has {len(query)} texts and text_2 {len(documents)}: give one, or as many",
            "text_1",
        )
    request = RerankRequest(
        body.text("model"),
        query,
        documents,
        body.text("instruction"),
        truncate_prompt_tokens=body.integer("truncate_prompt_tokens"),
    )
    body.finish()
    return request


def embedding_answer(
    request: EmbeddingRequest, outputs: Sequence[EmbeddingRequestOutput], model: str
) -> dict[str, Any]:
    """OpenAI's list of embeddings."""
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": place,
                "embedding": _encoded(output.outputs.embedding, request.as_base64),
            }
            for place, output in enumerate(outputs)
        ],
        "model": model,
        "usage": _usage(outputs),
    }


def rerank_answer(
    request: RerankRequest, outputs: Sequence[ScoringRequestOutput], model: str, answer_id: str
) -> dict[str, Any]:
    """The documents, best first; equal ones in their order."""
    order = sorted(range(len(outputs)), key=lambda i: -outputs[i].outputs.score)
    results: list[dict[str, Any]] = [
        {"index": place, "relevance_score": outputs[place].outputs.score}
        for place in order[: request.top_n]
    ]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": request.documents[result["index"]]}
    return {"id": answer_id, "model": model, "usage": _usage(outputs), "results": results}


def score_answer(outputs: Sequence[ScoringRequestOutput], model: str) -> dict[str, Any]:
    """vLLM's list of scores, in the order of the pairs."""
    return {
        "object": "list",
        "data": [
            {"object": "score", "index": place, "score": output.outputs.score}
            for place, output in enumerate(outputs)
        ],
        "model": model,
        "usage": _usage(outputs),
    }


def _encoded(values: list[float], as_base64: bool) -> list[float] | str:
    if not as_base64:
        return values
    packed = array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return base64.b64encode(packed.tobytes()).decode("ascii")


def _usage(outputs: Sequence[EmbeddingRequestOutput | ScoringRequestOutput]) -> dict[str, int]:
    count = sum(len(output.prompt_token_ids) for output in outputs)
    return {"prompt_tokens": count, "total_tokens": count}


def read_positive(body: Body, name: str) -> int | None:
    """Raises ProtocolError for what isn't an integer of at least 1."""
    value = body.integer(name)
    if value is not None and value < 1:
        raise ProtocolError(f"{name} must be at least 1, got {quoted(value)}", name)
    return value


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ProtocolError(f"{name} must be a list of strings", name, "invalid_type")
    if not 1 <= len(value) <= _MOST_DOCUMENTS:
        raise ProtocolError(
            f"{name} must have 1 to {_MOST_DOCUMENTS} entries, got {len(value)}", name
        )
    return value
