"""What `embed` and `score` return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class EmbeddingOutput:
    """embedding: the numbers; [] of a request that failed."""

    embedding: list[float] = field(default_factory=list)

    @property
    def data(self) -> list[float]:
        """The same, by vLLM's name in what `encode` returns."""
        return self.embedding


@dataclass(slots=True)
class EmbeddingRequestOutput:
    """The embedding of one input.

    prompt: the input as it was given. prompt_token_ids: what the engine read, with the tokens that
        the tokenizer adds.
    num_cached_tokens: of these, those whose keys and values were in the prefix cache.
    error_code: 200, or why there is no embedding: 400 for a bad input, 499 if it was aborted, 500.
    error_msg: None, or the reason in words.
    """

    request_id: str
    prompt: Any
    prompt_token_ids: list[int]
    outputs: EmbeddingOutput
    num_cached_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None


@dataclass(slots=True)
class ScoringOutput:
    """score: how well the document answers the query; 0.0 of a request that failed.

    Of a reranker the probability of "yes", from 0 to 1; of a cross-encoder its label's, or the
    label's logit (docs/embeddings.md); else the cosine of two embeddings, from -1 to 1.
    """

    score: float = 0.0


@dataclass(slots=True)
class ScoringRequestOutput:
    """The score of one document. The fields are those of EmbeddingRequestOutput.

    prompt_token_ids: of query and document together; two embeddings' ids one behind the other.
    """

    request_id: str
    prompt_token_ids: list[int]
    outputs: ScoringOutput
    num_cached_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None
