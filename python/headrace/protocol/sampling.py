"""The fields of a body that say how to sample, made into SamplingParams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.options.guided_decoding import GuidedDecodingParams
from headrace.options.sampling_params import SamplingParams
from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.quoting import quoted

# SamplingParams' own names, which FastDeploy's and vLLM's servers take beside OpenAI's.
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_INTEGERS = (
    "n",
    "top_k",
    "max_tokens",
    "min_tokens",
    "reasoning_max_tokens",
    "response_max_tokens",
    "truncate_prompt_tokens",
)
_FLAGS = (
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "temp_scaled_logprobs",
    "top_p_normalized_logprobs",
)
_LISTS = ("stop_token_ids", "bad_words", "bad_words_token_ids", "allowed_token_ids")
# Fields of a body that hold a guided output, with GuidedDecodingParams' name for each.
GUIDED_FIELDS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
    "structural_tag": "structural_tag",
}
# What read_sampling takes beside OpenAI's fields.
SAMPLING_FIELDS = (
    *(name for name in _NUMBERS if name not in ("temperature", "top_p")),
    *(name for name in _INTEGERS if name not in ("n", "max_tokens")),
    *_FLAGS,
    *_LISTS,
    *GUIDED_FIELDS,
    "structured_outputs",
    "logit_bias",
    "logits_processors_args",
)
_SEEDS = 922337203685477580 + 1
_MOST_BIAS = 100
_MOST_ENTRIES = 1024  # of `stop`, logit_bias, and lists of tokens and words
MOST_OUTPUTS = 128
MOST_LOGPROBS = 20
TOKEN_CHARACTERS = 2  # at least, on an average


def read_sampling(body: Body, logprobs: int | None, more: Mapping[str, Any]) -> SamplingParams:
    """Takes what concerns sampling. Raises ProtocolError.

    logprobs: of how many tokens, as the caller has read it: the protocols differ there.
    more: further fields of SamplingParams.
    """
    given: dict[str, Any] = {"stop": _stop(body), "logprobs": logprobs, **more}
    for names, take in (
        (_NUMBERS, body.number),
        (_INTEGERS, body.integer),
        (_FLAGS, body.flag),
        (_LISTS, body.array),
    ):
        for name in names:
            value = take(name)
            if names is _LISTS:
                _check_count(name, value)
            given[name] = given.get(name) if value is None else value
    if given["n"] is not None and given["n"] > MOST_OUTPUTS:
        raise ProtocolError(f"n must be at most {MOST_OUTPUTS}, got {quoted(given['n'])}", "n")
    if given["reasoning_max_tokens"] == -1:  # FastDeploy's word for no limit
        given["reasoning_max_tokens"] = None
    if given["min_tokens"] is None:
        given["min_tokens"] = 0  # an answer may be empty, as OpenAI's
    given["seed"] = _seed(body)
    given["logits_processors_args"] = _logit_bias(body)
    given["guided_decoding"] = _guided(body)
    _refuse_others(body, given["n"])
    try:
        return SamplingParams(**{name: v for name, v in given.items() if v is not None})
    except (TypeError, ValueError) as error:
        raise _named(error, given) from error


def read_prompt_logprobs(body: Body) -> int | None:
    """vLLM's field: of how many tokens at each place of the prompt. Raises ProtocolError."""
    asked = body.integer("prompt_logprobs")
    if asked is not None and not 0 <= asked <= MOST_LOGPROBS:
        raise ProtocolError(
            f"prompt_logprobs must be from 0 to {MOST_LOGPROBS}, got {quoted(asked)}",
            "prompt_logprobs",
        )
    return asked


def _check_count(name: str, value: Any) -> None:
    if value is not None and len(value) > _MOST_ENTRIES:
        raise ProtocolError(
            f"{name} may have at most {_MOST_ENTRIES} entries, got {len(value)}", name
        )


def _refuse_others(body: Body, n: int | None) -> None:
    """What other servers know and this engine doesn't do, each but with its neutral value."""
    body.refuse("best_of", "nothing is chosen among outputs; ask for all of them by n", 1, n or 1)
    body.refuse("guided_decoding_backend", "it is an option of the engine, not of a request")
    body.refuse("guided_whitespace_pattern", "write the white space into guided_grammar")
    body.refuse("logits_processors", "use logit_bias")
    body.refuse("spaces_between_special_tokens", "texts have no spaces of their own", False, True)


def _stop(body: Body) -> list[str] | None:
    value = body.take("stop")
    items = [value] if isinstance(value, str) else value
    if items is not None and not (
        isinstance(items, list) and all(isinstance(item, str) for item in items)
    ):
        raise ProtocolError(
            f"stop must be a string or an array of strings, got {quoted(value)}",
            "stop",
            "invalid_type",
        )
    _check_count("stop", items)
    return items or None


def _seed(body: Body) -> int | None:
    """OpenAI's seeds are any 64-bit integers; the engine's are fewer and not negative."""
    seed = body.integer("seed")
    if seed is None:
        return None
    if not -(1 << 63) <= seed < 1 << 63:
        raise ProtocolError(f"seed must be a 64-bit integer, got {quoted(seed)}", "seed")
    return seed % _SEEDS


def _logit_bias(body: Body) -> dict[str, Any] | None:
    bias = body.mapping("logit_bias")
    _check_count("logit_bias", bias)
    if bias is not None:
        for value in bias.values():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ProtocolError(
                    f"logit_bias must hold numbers, got {quoted(value)}",
                    "logit_bias",
                    "invalid_type",
                )
            if not -_MOST_BIAS <= value <= _MOST_BIAS:
                raise ProtocolError(
                    f"logit_bias must hold numbers from -100 to 100, got {quoted(value)}",
                    "logit_bias",
                )
    own = body.mapping("logits_processors_args")
    if own is not None and bias is not None and "logit_bias" in own:
        raise ProtocolError(
            "logit_bias is given twice, also in logits_processors_args: leave one out",
            "logit_bias",
        )
    return own if bias is None else {**(own or {}), "logit_bias": bias}


def _guided(body: Body) -> GuidedDecodingParams | None:
    """What the output must look like, whichever of the fields says so; at most one may."""
    asked: dict[str, dict[str, Any]] = {}
    formatted = _response_format(body)
    if formatted:
        asked["response_format"] = formatted
    structured = body.mapping("structured_outputs")
    if structured:
        part = Body(structured, "structured_outputs")
        found = {name: part.take(name) for name in GUIDED_FIELDS.values()}
        part.finish()
        asked["structured_outputs"] = {k: v for k, v in found.items() if v not in (None, False)}
    for name, own in GUIDED_FIELDS.items():
        value = body.take(name)
        if value not in (None, False):
            asked[name] = {own: value}
    if len(asked) > 1:
        raise ProtocolError(
            f"only one of {', '.join(asked)} may say what the output looks like", next(iter(asked))
        )
    for name, values in asked.items():
        if values:
            try:
                return GuidedDecodingParams(**values)
            except (TypeError, ValueError) as error:
                raise ProtocolError(f"{name}: {error}", name) from error
    return None


def _response_format(body: Body) -> dict[str, Any] | None:
    """For GuidedDecodingParams; None for text."""
    value = body.take("response_format")
    if value is None:
        return None
    form = Body(value, "response_format")
    form.required("type")
    kind = form.choice("type", ("text", "json_object", "json_schema", "structural_tag"))
    if kind == "structural_tag":
        try:
            return {"structural_tag": json.dumps(value)}
        except RecursionError:
            raise ProtocolError("response_format is nested too deeply", "response_format") from None
    if kind != "json_schema":
        form.finish()
        return {"json_object": True} if kind == "json_object" else None
    described = Body(form.required("json_schema"), "response_format.json_schema")
    form.finish()
    for name in ("name", "description"):
        described.text(name)
    strict = described.flag("strict") is True  # else what can't be guided is left to the model
    schema = described.mapping("schema")
    described.finish()
    return {"json_object": True} if schema is None else {"json": schema, "strict": strict}


def _named(error: Exception, given: Mapping[str, Any]) -> ProtocolError:
    """The first field that a message of SamplingParams names is the one it is about."""
    message = str(error)
    words = (word.rstrip(":,.") for word in message.split())
    name = next((word for word in words if word in given or word == "logit_bias"), None)
    kind = "invalid_type" if isinstance(error, TypeError) else "invalid_value"
    return ProtocolError(message, name, kind)
