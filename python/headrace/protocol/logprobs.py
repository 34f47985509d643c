"""Log-probabilities as OpenAI's objects hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.llm.outputs import CompletionOutput, Logprob, PromptLogprobs

_LEAST = -9999.0  # instead of minus infinity, which JSON has no number for


def chat_logprobs(output: CompletionOutput, top: int) -> dict[str, Any] | None:
    """{"content": [...]} for the tokens of an output or an increment; None if it has none.

    top: how many of the likeliest tokens were asked for.
    """
    if output.logprobs is None:
        return None
    content = []
    for token_id, position in _positions(output):
        own = _entry(position[token_id])
        best = list(position.values())
        best.sort(key=lambda entry: (-entry.logprob, entry.rank or 0))
        content.append({**own, "top_logprobs": [_entry(entry) for entry in best[:top]]})
    return {"content": content, "refusal": None}


def completion_logprobs(
    output: CompletionOutput,
    top: int,
    start: int = 0,
    prompt: tuple[Sequence[int], PromptLogprobs] | None = None,
) -> dict[str, Any] | None:
    """The object of /v1/completions, with columns for tokens.

    start: where in the whole text the output's begins.
    prompt: ids and log-probabilities of the prompt, where it is part of the text.
    """
    if output.logprobs is None:
        return None
    rows: list[tuple[int, Mapping[int, Logprob] | None]] = []
    if prompt is not None:
        rows.extend(zip(prompt[0], prompt[1], strict=False))
    rows.extend(_positions(output))
    result: dict[str, list[Any]] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    for token_id, position in rows:
        entry = (position or {}).get(token_id)
        text = "" if entry is None else _text(entry)
        best = sorted((position or {}).values(), key=lambda one: -one.logprob)[: max(top, 1)]
        result["tokens"].append(text)
        result["token_logprobs"].append(None if entry is None else _finite(entry.logprob))
        result["top_logprobs"].append(
            None if entry is None else {_text(one): _finite(one.logprob) for one in best}
        )
        result["text_offset"].append(start)
        start += len(text)
    return result


def _positions(output: CompletionOutput) -> list[tuple[int, dict[int, Logprob]]]:
    return list(zip(output.token_ids, output.logprobs or (), strict=False))


def _entry(entry: Logprob) -> dict[str, Any]:
    text = _text(entry)
    return {
        "token": text,
        "logprob": _finite(entry.logprob),
        "bytes": list(text.encode(errors="replace")),
    }


def _text(entry: Logprob) -> str:
    return entry.decoded_token or ""


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _LEAST
