"""Every field of SamplingParams: default, range, message."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from typing import Any

import pytest

from headrace import GuidedDecodingParams, SamplingParams
from headrace.options.sampling_params import MAX_SEED, is_default

DEFAULTS = {
    "n": 1,
    "best_of": None,
    "presence_penalty": None,
    "frequency_penalty": None,
    "repetition_penalty": None,
    "temperature": None,
    "top_p": None,
    "top_k": 0,
    "min_p": 0.0,
    "seed": None,
    "stop": None,
    "stop_token_ids": None,
    "stop_seqs_len": None,
    "max_tokens": None,
    "reasoning_max_tokens": None,
    "response_max_tokens": None,
    "min_tokens": 1,
    "logprobs": None,
    "prompt_logprobs": None,
    "temp_scaled_logprobs": False,
    "top_p_normalized_logprobs": False,
    "bad_words": None,
    "guided_decoding": None,
    "bad_words_token_ids": None,
    "logits_processors_args": None,
    "include_stop_str_in_output": False,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "allowed_token_ids": None,
    "truncate_prompt_tokens": None,
    "output_kind": None,
}

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n": 0}, ValueError, "n must be at least 1, got 0."),
    ({"n": 1.5}, ValueError, "n must be an int, but is of type <class 'float'>"),
    ({"presence_penalty": 2.5}, ValueError, "presence_penalty must be in [-2, 2], got 2.5."),
    ({"presence_penalty": -3}, ValueError, "presence_penalty must be in [-2, 2], got -3."),
    ({"frequency_penalty": -2.1}, ValueError, "frequency_penalty must be in [-2, 2], got -2.1."),
    ({"repetition_penalty": 0}, ValueError, "repetition_penalty must be greater than zero, got 0."),
    (
        {"repetition_penalty": -1.0},
        ValueError,
        "repetition_penalty must be greater than zero, got -1.0.",
    ),
    ({"temperature": -0.1}, ValueError, "temperature must be non-negative, got -0.1."),
    ({"temperature": float("nan")}, ValueError, "temperature must be non-negative, got nan."),
    ({"temperature": float("inf")}, ValueError, "temperature must be non-negative, got inf."),
    ({"temperature": "hot"}, TypeError, "temperature must be a number, got str"),
    ({"top_p": 1.1}, ValueError, "top_p must be in [0, 1], got 1.1."),
    ({"top_p": -0.1}, ValueError, "top_p must be in [0, 1], got -0.1."),
    ({"top_k": -2}, ValueError, "top_k must be 0 (disable), or at least 1, got -2."),
    ({"top_k": 2.5}, TypeError, "top_k must be an integer, got float"),
    ({"top_k": None}, TypeError, "top_k must be an integer, got NoneType"),
    ({"min_p": 1.5}, ValueError, "min_p must be in [0, 1], got 1.5."),
    ({"min_p": -0.5}, ValueError, "min_p must be in [0, 1], got -0.5."),
    ({"seed": -1}, ValueError, f"seed must be in [0, {MAX_SEED}], got -1."),
    ({"seed": MAX_SEED + 1}, ValueError, f"seed must be in [0, {MAX_SEED}], got {MAX_SEED + 1}."),
    ({"seed": 1.5}, TypeError, "seed must be an integer, got float"),
    ({"stop": ["a", ""]}, ValueError, "stop must not contain an empty string."),
    ({"stop": 7}, TypeError, "stop must be a string or a list of strings, got 7"),
    ({"stop": ["a", 7]}, TypeError, "stop must be a string or a list of strings, got ['a', 7]"),
    (
        {"stop_token_ids": ["a"]},
        TypeError,
        "stop_token_ids must be a list of token ids, got ['a']",
    ),
    ({"stop_token_ids": [[]]}, TypeError, "stop_token_ids must be a list of token ids, got [[]]"),
    ({"max_tokens": 0}, ValueError, "max_tokens must be at least 1, got 0."),
    ({"max_tokens": 1.5}, TypeError, "max_tokens must be an integer, got float"),
    (
        {"reasoning_max_tokens": -1},
        ValueError,
        "reasoning_max_tokens must be greater than or equal to 0, got -1.",
    ),
    (
        {"response_max_tokens": -1},
        ValueError,
        "response_max_tokens must be at least 1, got -1.",
    ),
    ({"min_tokens": -1}, ValueError, "min_tokens must be greater than or equal to 0, got -1."),
    ({"min_tokens": None}, TypeError, "min_tokens must be an integer, got NoneType"),
    (
        {"min_tokens": 9, "max_tokens": 8},
        ValueError,
        "min_tokens must be less than or equal to max_tokens=8, got 9.",
    ),
    ({"logprobs": -2}, ValueError, "logprobs must be a non-negative value or -1, got -2."),
    ({"logprobs": 1.5}, TypeError, "logprobs must be an integer, got float"),
    (
        {"prompt_logprobs": -2},
        ValueError,
        "prompt_logprobs must be a non-negative value or -1, got -2.",
    ),
    ({"bad_words": "word"}, TypeError, "bad_words must be a list of strings, got 'word'"),
    (
        {"bad_words_token_ids": ["a"]},
        TypeError,
        "bad_words_token_ids must be a list of token ids, got ['a']",
    ),
    (
        {"guided_decoding": {"json": "{}"}},
        TypeError,
        "guided_decoding must be a GuidedDecodingParams, got dict",
    ),
    ({"logits_processors_args": 3}, TypeError, "logits_processors_args must be a dict, got int"),
    (
        {"logits_processors_args": {"logit_bias": [1]}},
        TypeError,
        "logit_bias must be a dict, but got list",
    ),
    (
        {"logits_processors_args": {"logit_bias": {"a": 1}}},
        TypeError,
        "failed to cast logit_bias to the correct {key -> value} type, expected {int -> float}",
    ),
]

HUGE = 10**5000  # more digits than Python writes
# What a hostile or mistaken caller may put into any field.
HOSTILE: list[Any] = [
    -HUGE, HUGE, -(2**63), 2**63, 2**40, 2**31, 10**9, -1, 0, 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), -float("inf"), "x", "", "\0", "\ud800", "x" * 100_000, b"x", 1j,
    [], [2**40], [-1], [HUGE], [[2**40]], [[]], [None], [1.5], ["x" * 100_000], list(range(2000)),
    [[1] * 2000], {}, {1: 2}, {"a" * 1000: 1}, {"logit_bias": {2**40: 1}}, object(), range(3),
    {"logit_bias": {-1: 1}}, {"logit_bias": {1.5: 1}}, {"logit_bias": {True: 1}},
    {"logit_bias": {1: float("nan")}}, {"logit_bias": {1: HUGE}}, {"logit_bias": {HUGE: 1}},
    {"logit_bias": {1: 1e308}}, {"logit_bias": dict.fromkeys(range(2000), 1)}, True, None,
]  # fmt: skip
# "stop_seqs_len" has no effect and no form.
CHECKED = sorted(set(DEFAULTS) - {"stop_seqs_len"})

BOUNDED: list[tuple[dict[str, Any], str]] = [
    ({"n": 10**9}, "n must be at most 16384, got 1000000000."),
    ({"best_of": 10**9}, "best_of must be in [1, 16384], got 1000000000."),
    ({"top_k": 2**31}, "top_k must be at most 2147483647, got 2147483648."),
    ({"temperature": 1e308}, "temperature must be at most 3.4e+38, got 1e+308."),
    ({"repetition_penalty": 1e308}, "repetition_penalty must be at most 3.4e+38, got 1e+308."),
    ({"max_tokens": 2**63}, "max_tokens must be less than 2**63, got 9223372036854775808."),
    ({"logprobs": 2**40}, "logprobs must be at most 2147483647, got 1099511627776."),
    ({"stop_token_ids": [2**40]}, "stop_token_ids must hold ids in [0, 2147483647], got 10995"),
    ({"stop_token_ids": [[1, -1]]}, "stop_token_ids must hold ids in [0, 2147483647], got -1."),
    ({"bad_words_token_ids": [-1]}, "bad_words_token_ids must hold ids in [0, 2147483647], got"),
    ({"stop": "x" * 70_000}, "stop must have at most 65536 characters in all, got 70000."),
    ({"stop_token_ids": [1] * 1025}, "stop_token_ids may have at most 1024 entries, got 1025."),
    (
        {"logits_processors_args": {"logit_bias": {-1: 1}}},
        "logit_bias must hold ids in [0, 2147483647], got -1.",
    ),
    (
        {"logits_processors_args": {"logit_bias": {5: float("inf")}}},
        "logit_bias must hold finite biases, got inf.",
    ),
]

ACCEPTED: list[dict[str, Any]] = [
    {"n": 3},
    {"presence_penalty": -2, "frequency_penalty": 2},
    {"repetition_penalty": 1e-9},
    {"temperature": 0},
    {"temperature": 1e6},
    {"top_p": 0},
    {"top_p": 1},
    {"top_k": -1},
    {"top_k": 1000000},
    {"min_p": 0},
    {"min_p": 1},
    {"seed": 0},
    {"seed": MAX_SEED},
    {"stop": "x"},
    {"stop": ["x", "yy"]},
    {"stop_token_ids": [1, 2]},
    {"stop_token_ids": [[1], [2, 3]]},
    {"min_tokens": 0},
    {"min_tokens": 8, "max_tokens": 8},
    {"logprobs": -1, "prompt_logprobs": 0},
    {"bad_words": [], "bad_words_token_ids": [5]},
    {"guided_decoding": GuidedDecodingParams(json_object=True)},
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_default(name: str) -> None:
    assert getattr(SamplingParams(), name) == DEFAULTS[name]


def test_vars_and_attributes() -> None:
    params = SamplingParams(top_k=3)
    assert set(vars(params)) == set(DEFAULTS)
    assert vars(params)["top_k"] == 3
    params.top_k = 5
    assert params.top_k == 5
    with pytest.raises(AttributeError, match="no field 'temprature'"):
        params.temprature = 1.0  # type: ignore[attr-defined]


def test_whole_numbers_of_other_types() -> None:
    numpy = pytest.importorskip("numpy")
    params = SamplingParams(
        n=2.0,  # type: ignore[arg-type]
        max_tokens=10.0,  # type: ignore[arg-type]
        top_k=numpy.int64(4),
        seed=numpy.uint32(5),
    )
    whole = (params.n, params.max_tokens, params.top_k, params.seed)
    assert whole == (2, 10, 4, 5)
    assert all(type(value) is int for value in whole)


@pytest.mark.parametrize(
    "values",
    [
        {"best_of": 2},
        {"stop_seqs_len": 3},
    ],
)
def test_what_has_no_effect_warns(values: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=f"{next(iter(values))}=. has no effect") as caught:
        SamplingParams(**values)
    assert caught[0].filename == __file__


def test_best_of_all_says_nothing(recwarn: pytest.WarningsRecorder) -> None:
    SamplingParams(n=2, best_of=2)
    assert not recwarn


def test_from_optional_by_position() -> None:
    values = (2, None, None, 0.5, None, None, None, 4, None, 7, "x", [9], None, None, None, 2, 3, 1)
    params = SamplingParams.from_optional(*values, ["bad"], None, [5], {"logit_bias": {1: 2.0}})
    assert (params.n, params.frequency_penalty, params.temperature) == (2, 0.5, 1.0)
    assert (params.top_k, params.seed, params.stop, params.stop_token_ids) == (4, 7, "x", [9])
    assert (params.max_tokens, params.min_tokens, params.logprobs) == (8192, 2, 3)
    assert (params.prompt_logprobs, params.bad_words, params.bad_words_token_ids) == (
        1,
        ["bad"],
        [5],
    )
    assert params.logits_processors_args == {"logit_bias": {1: 2.0}}
    assert SamplingParams.from_optional(1, ignore_eos=True).ignore_eos


def test_every_field_has_a_tested_default() -> None:
    assert {item.name for item in fields(SamplingParams)} == set(DEFAULTS)


@pytest.mark.parametrize(("values", "kind", "message"), REFUSED)
def test_refused(values: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        SamplingParams(**values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("values", "message"), BOUNDED)
def test_bounded(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        SamplingParams(**values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", CHECKED)
def test_hostile_values(name: str, make_llm: Any) -> None:
    """Each is refused by its field's name, in a short message, or serves a request."""
    llm = make_llm(enable_logprob=True, max_model_len=32)
    shown = {"logits_processors_args": "logit", "min_tokens": "min_"}.get(name, name)
    for value in HOSTILE:
        try:
            params = SamplingParams(**{name: value})
            (output, *_) = llm.generate([[5, 6, 7], [8]], [params] * 2, use_tqdm=False)
            message = output.error_msg
            assert (output.error_code == 200) == (message is None)
        except (TypeError, ValueError) as error:
            message = str(error)
        if message is not None:
            assert shown in message
            assert len(message) < 400


@pytest.mark.parametrize("values", ACCEPTED)
def test_accepted(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    for name, value in values.items():
        assert getattr(params, name) == value


def test_checks_come_in_the_documented_order() -> None:
    order = ["n", "presence_penalty", "temperature", "top_p", "min_p", "seed", "max_tokens"]
    bad: dict[str, Any] = dict.fromkeys(order, -9)
    for name in order:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            SamplingParams(**bad)
        del bad[name]


def test_unknown_field() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]


def test_a_given_zero_is_not_the_default() -> None:
    assert is_default(SamplingParams().top_k)
    assert is_default(SamplingParams().min_p)
    assert not is_default(SamplingParams(top_k=0).top_k)
    assert not is_default(SamplingParams(min_p=0.0).min_p)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_copies_remember_what_was_given(duplicate: Any) -> None:
    assert is_default(duplicate(SamplingParams()).top_k)
    assert not is_default(duplicate(SamplingParams(top_k=0)).top_k)
    assert duplicate(SamplingParams(seed=3)) == SamplingParams(seed=3)


def test_reasoning_max_tokens_is_clipped() -> None:
    assert SamplingParams(reasoning_max_tokens=50, max_tokens=10).reasoning_max_tokens == 10
    assert SamplingParams(reasoning_max_tokens=50).reasoning_max_tokens == 50


def test_logit_bias_is_cast_in_a_copy() -> None:
    given = {"logit_bias": {"5": 1}}
    params = SamplingParams(logits_processors_args=given)
    assert params.logits_processors_args == {"logit_bias": {5: 1.0}}
    assert given == {"logit_bias": {"5": 1}}


def test_from_dict_ignores_unknown_keys() -> None:
    params = SamplingParams.from_dict({"temperature": 0.5, "user": "x", "n": 2, "seed": 1})
    assert params == SamplingParams(temperature=0.5, n=2, seed=1)


def test_from_generic_request() -> None:
    class Request:
        temperature = 0.25
        top_k = None
        stop = ("x",)

    assert SamplingParams.from_generic_request(Request()).temperature == 0.25
    assert is_default(SamplingParams.from_generic_request(Request()).top_k)
    assert SamplingParams.from_generic_request({"max_tokens": 4}).max_tokens == 4


def test_from_optional_is_neutral() -> None:
    params = SamplingParams.from_optional(None, None, None, None, None, None, None, None, None)
    assert (params.presence_penalty, params.frequency_penalty) == (0.0, 0.0)
    assert (params.repetition_penalty, params.temperature, params.top_p) == (1.0, 1.0, 1.0)
    assert (params.n, params.max_tokens, params.min_tokens) == (1, 8192, 1)
    assert not is_default(params.top_k)
    assert SamplingParams.from_optional(max_tokens=5, stop="x").max_tokens == 5


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"json": {"type": "object"}}, "guided_json"),
        ({"json": "{}"}, "guided_json"),
        ({"regex": "a+"}, "guided_regex"),
        ({"choice": ["a"]}, "guided_choice"),
        ({"grammar": "root ::= x"}, "guided_grammar"),
        ({"json_object": True}, "guided_json_object"),
        ({"structural_tag": "{}"}, "structural_tag"),
    ],
)
def test_guided_decoding_names(values: dict[str, Any], name: str) -> None:
    (value,) = values.values()
    guided = GuidedDecodingParams(**values)
    assert guided.to_dict() == {name: value}
    for params in (
        SamplingParams.from_dict({name: value, "other": 1}),
        SamplingParams.from_generic_request({name: value, "other": 1}),
        SamplingParams.from_dict({name: "ignored", "guided_decoding": guided}),
    ):
        assert params.guided_decoding == guided


def test_guided_decoding_is_one_kind() -> None:
    with pytest.raises(ValueError, match="You can only use one kind of guided decoding"):
        GuidedDecodingParams(regex="a", choice=["b"])


@pytest.mark.parametrize("values", [{"regex": 3}, {"choice": "abc"}, {"json": 4}])
def test_guided_decoding_types(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(values))} must be"):
        GuidedDecodingParams(**values)


def test_guided_decoding_empty_choice() -> None:
    with pytest.raises(ValueError, match="choice must not be empty"):
        GuidedDecodingParams(choice=[])
