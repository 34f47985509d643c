"""vLLM's fields of a body that ask for a beam search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.protocol.sampling import GUIDED_FIELDS

_MOST_STEPS = 1 << 14  # of all beams: each is a request to the engine,
_MOST_LOGPROBS = 1 << 20  # which tells 2 n log-probabilities
_SEARCHED = frozenset(
    {
        *("n", "max_tokens", "temperature", "seed", "ignore_eos", "logprobs"),
        "include_stop_str_in_output",
    }
)
# What says nothing, beside SamplingParams' defaults.
_NEUTRAL: dict[str, Any] = {
    "top_p": 1, "top_k": -1, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
    "min_tokens": 0,
}  # fmt: skip
# What fields of a body are called that SamplingParams have another name for.
_FIELDS = {
    "guided_decoding": ("response_format", "structured_outputs", *GUIDED_FIELDS),
    "logits_processors_args": ("logit_bias",),
    "prompt_logprobs": ("prompt_logprobs", "echo"),
}


def read_beams(
    body: Body, params: SamplingParams, others: Mapping[str, bool], prompts: int = 1
) -> BeamSearchParams | None:
    """n beams instead of n samples, if the body asks for these. Raises ProtocolError.

    params: as the body is read otherwise. others: what else a search doesn't do, and whether it is
    asked for. prompts: how many.
    """
    wanted = body.flag("use_beam_search")
    penalty = body.number("length_penalty")
    if not wanted:
        if penalty not in (None, 1):
            raise ProtocolError(
                "length_penalty needs use_beam_search: true", "length_penalty", "unsupported_value"
            )
        return None
    _check_others(body, params, others)
    most = params.max_tokens
    if most is None:
        raise ProtocolError("use_beam_search needs max_tokens", "max_tokens")
    steps = prompts * params.n * most
    limit = min(_MOST_STEPS, _MOST_LOGPROBS // (2 * params.n))
    if steps > limit:
        raise ProtocolError(
            f"n beams of max_tokens tokens come to {steps} tokens: with n = {params.n}, "
            f"use_beam_search takes at most {limit} for a request",
            "max_tokens",
        )
    if params.logprobs is not None and params.logprobs > 2 * params.n:
        raise ProtocolError(
            f"logprobs may be at most {2 * params.n}, twice n, with use_beam_search", "logprobs"
        )
    try:
        return BeamSearchParams(
            params.n,
            most,
            params.ignore_eos,
            params.temperature or 0.0,
            1.0 if penalty is None else penalty,
            params.include_stop_str_in_output,
        )
    except ValueError as error:
        name = "length_penalty" if "length_penalty" in str(error) else "n"
        raise ProtocolError(str(error), name) from error


def _check_others(body: Body, params: SamplingParams, others: Mapping[str, bool]) -> None:
    """What a search doesn't do."""
    for name, given in others.items():
        if given:
            raise _excluded(name)
    if params.seed is not None and params.temperature:
        raise _excluded("seed")
    body.note("seed", "nothing is drawn with use_beam_search")
    for item in fields(SamplingParams):
        value = getattr(params, item.name)
        if item.name in _SEARCHED or value in (item.default, _NEUTRAL.get(item.name, item.default)):
            continue
        names = _FIELDS.get(item.name, ())
        raise _excluded(next((name for name in names if body.take(name) is not None), item.name))


def _excluded(name: str) -> ProtocolError:
    return ProtocolError(
        f"{name} doesn't go with use_beam_search: leave one of them out",
        name.partition(":")[0],
        "unsupported_value",
    )
