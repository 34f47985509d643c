"""`embed` and `score` between their arguments and their results, for LLM and AsyncLLM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from headrace.llm.pooling.outputs import (
    EmbeddingOutput,
    EmbeddingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from headrace.llm.pooling.plan import PoolingJob, PoolingPlanner, pair_list
from headrace.llm.pooling.run import PooledResult


class EmbedCall:
    """One call of `embed`: `jobs` to run, then `finish`."""

    def __init__(self, planner: PoolingPlanner, inputs: Any, **options: Any) -> None:
        """`options`: of PoolingPlanner.embed_jobs, which says what it raises."""
        self.jobs: list[PoolingJob] = planner.embed_jobs(inputs, **options)

    def finish(self, results: Sequence[PooledResult]) -> list[EmbeddingRequestOutput]:
        return [
            EmbeddingRequestOutput(
                result.request_id,
                job.original,
                result.token_ids,
                EmbeddingOutput(result.values),
                result.cached_tokens,
                result.error_code,
                result.error_msg,
            )
            for job, result in zip(self.jobs, results, strict=True)
        ]


class ScoreCall:
    """One call of `score`: a job for each pair, or, of embeddings, for each different text."""

    def __init__(
        self,
        planner: PoolingPlanner,
        query: Any,
        documents: Any,
        instruction: str | None,
        truncate_prompt_tokens: int | None = None,
    ) -> None:
        """Raises ValueError, TypeError and UnsupportedError for what is wrong with the call."""
        self._pairs = pair_list(query, documents)
        self._of_pair: Any = None
        if planner.is_reranker():
            self._of_pair = _probability
            self.jobs = planner.reranker_jobs(self._pairs, instruction, truncate_prompt_tokens)
            return
        if instruction is not None:
            raise ValueError(
                "instruction is for rerankers of Qwen3's form: put it before the query yourself"
            )
        if planner.is_classifier():
            self._of_pair = _logit if planner.scores_are_logits() else _sigmoid
            self.jobs = planner.pair_jobs(self._pairs, truncate_prompt_tokens)
            return
        # Each once; queries and documents may have prompts of their own.
        self._texts = list(
            dict.fromkeys(
                (kind, text)
                for pair in self._pairs
                for kind, text in zip(("query", "document"), pair, strict=True)
            )
        )
        prompts = {
            "query": planner.prompt_for("query"),
            "document": planner.prompt_for("document", "passage"),
        }
        self.jobs = [
            planner.embed_jobs(
                text,
                prompt_name=prompts[kind],
                normalize=True,
                truncate_prompt_tokens=truncate_prompt_tokens,
            )[0]
            for kind, text in self._texts
        ]

    def finish(self, results: Sequence[PooledResult]) -> list[ScoringRequestOutput]:
        if self._of_pair is not None:
            return [_output([result], self._of_pair) for result in results]
        by_text = dict(zip(self._texts, results, strict=True))
        return [
            _output([by_text["query", query], by_text["document", document]], _cosine)
            for query, document in self._pairs
        ]


def _output(parts: Sequence[PooledResult], score: Any) -> ScoringRequestOutput:
    failed = next((part for part in parts if part.error_code != 200), None)
    return ScoringRequestOutput(
        parts[-1].request_id,
        [token for part in parts for token in part.token_ids],
        ScoringOutput(0.0 if failed else score(*(part.values for part in parts))),
        sum(part.cached_tokens for part in parts),
        200 if failed is None else failed.error_code,
        None if failed is None else failed.error_msg,
    )


def _probability(logits: Sequence[float]) -> float:
    """Of "yes" among "yes" and "no"."""
    yes, no = logits
    return _sigmoid([yes - no])


def _sigmoid(logits: Sequence[float]) -> float:
    """Of a classifier's only label."""
    return 0.5 * (1.0 + math.tanh(0.5 * _logit(logits)))


def _logit(logits: Sequence[float]) -> float:
    (logit,) = logits
    return logit


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Of two of length 1, but for rounding."""
    return max(-1.0, min(1.0, math.fsum(map(mul, a, b))))
