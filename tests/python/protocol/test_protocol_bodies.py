"""Bodies of OpenAI's requests: each field works, is noted, or is refused by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.body import Body
from headrace.protocol.chat import read_chat
from headrace.protocol.completions import read_completion
from headrace.protocol.errors import ProtocolError, error_body
from headrace.server.responses.items import read_items

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def chat(**fields: Any) -> Any:
    return read_chat({"messages": HELLO, **fields})


def refused(**fields: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        chat(**fields)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"temperature": 0.5}, "temperature", 0.5),
        ({"top_p": 0.9}, "top_p", 0.9),
        ({"min_p": 0.1}, "min_p", 0.1),
        ({"top_k": 5}, "top_k", 5),
        ({"presence_penalty": 1}, "presence_penalty", 1),
        ({"frequency_penalty": -1}, "frequency_penalty", -1),
        ({"repetition_penalty": 1.1}, "repetition_penalty", 1.1),
        ({"n": 3}, "n", 3),
        ({"n": 3.0}, "n", 3),
        ({"seed": 7}, "seed", 7),
        ({"seed": -1}, "seed", 922337203685477580),
        ({"max_tokens": 9}, "max_tokens", 9),
        ({"max_completion_tokens": 9}, "max_tokens", 9),
        ({"max_completion_tokens": 9, "max_tokens": 9}, "max_tokens", 9),
        ({"min_tokens": 2}, "min_tokens", 2),
        ({"stop": "x"}, "stop", ["x"]),
        ({"stop": ["x", "y"]}, "stop", ["x", "y"]),
        ({"stop": []}, "stop", None),
        ({"stop_token_ids": [4]}, "stop_token_ids", [4]),
        ({"bad_words": ["x"]}, "bad_words", ["x"]),
        ({"bad_words_token_ids": [4]}, "bad_words_token_ids", [4]),
        ({"allowed_token_ids": [4]}, "allowed_token_ids", [4]),
        ({"truncate_prompt_tokens": -1}, "truncate_prompt_tokens", -1),
        ({"ignore_eos": True}, "ignore_eos", True),
        ({"include_stop_str_in_output": True}, "include_stop_str_in_output", True),
        ({"skip_special_tokens": False}, "skip_special_tokens", False),
        ({"temp_scaled_logprobs": True}, "temp_scaled_logprobs", True),
        ({"top_p_normalized_logprobs": True}, "top_p_normalized_logprobs", True),
        ({"logit_bias": {"5": -100}}, "logits_processors_args", {"logit_bias": {5: -100.0}}),
        ({"logits_processors_args": {"logit_bias": {"5": 1}}}, "logits_processors_args",
         {"logit_bias": {5: 1.0}}),
        ({"logprobs": True}, "logprobs", 0),
        ({"logprobs": True, "top_logprobs": 4}, "logprobs", 4),
        ({"logprobs": False}, "logprobs", None),
        ({"temperature": None, "tools": None}, "temperature", None),
    ],
)  # fmt: skip
def test_a_sampling_field_reaches_the_params(
    fields: dict[str, Any], name: str, value: object
) -> None:
    assert getattr(chat(**fields).params, name) == value


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"guided_json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {
                "name": "a", "strict": True, "schema": {"type": "null"}}}},
            {"guided_json": {"type": "null"}},
        ),
        ({"guided_regex": "a+"}, {"guided_regex": "a+"}),
        ({"guided_choice": ["a"]}, {"guided_choice": ["a"]}),
        ({"guided_json": {"type": "null"}}, {"guided_json": {"type": "null"}}),
        ({"guided_grammar": "start: /a/"}, {"guided_grammar": "start: /a/"}),
        ({"guided_json_object": True}, {"guided_json_object": True}),
        ({"guided_json_object": False}, None),
        ({"structured_outputs": {"regex": "a"}}, {"guided_regex": "a"}),
        ({"structured_outputs": {}}, None),
    ],
)  # fmt: skip
def test_the_form_of_the_output(fields: dict[str, Any], form: object) -> None:
    guided = chat(**fields).params.guided_decoding
    assert (None if guided is None else guided.to_dict()) == form


def test_a_structural_tag_is_passed_on_as_json() -> None:
    tag = {"type": "structural_tag", "structures": [], "triggers": []}
    guided = chat(response_format=tag).params.guided_decoding
    assert json.loads(guided.structural_tag) == tag


def test_a_structural_tag_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    error = refused(response_format={"type": "structural_tag", "structures": deep})
    assert error.param == "response_format"


def test_the_rest_of_a_chat_is_read() -> None:
    request = chat(
        model="m",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "add"}},
        parallel_tool_calls=False,
        chat_template="{{ messages }}",
        chat_template_kwargs={"a": 1},
        enable_thinking=False,
        reasoning_effort="low",
        return_token_ids=True,
        request_id="r1",
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    assert (request.model, request.request_id, request.return_token_ids) == ("m", "r1", True)
    assert (request.tools.choice, request.tools.name) == ("named", "add")
    assert not request.tools.parallel
    assert request.chat_template == "{{ messages }}"
    assert request.chat_template_kwargs == {
        "a": 1,
        "enable_thinking": False,
        "reasoning_effort": "low",
    }
    assert request.stream.wanted
    assert request.stream.include_usage
    assert request.stream.continuous_usage


def test_messages_reach_the_engine_with_its_roles() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    read = read_chat({"messages": messages}).messages
    assert [message["role"] for message in read] == ["system", "user", "assistant", "tool"]
    assert read[2] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert read[3]["tool_call_id"] == "c"


@pytest.mark.parametrize("arguments", ["", "null", '{"a": 1', None, {}, {"a": 1}, [1], 5])
def test_arguments_of_an_earlier_call_refuse_no_turn(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
    turns = [*HELLO, {"role": "assistant", "tool_calls": [call]}]
    assert read_chat({"messages": turns}).messages[1]["tool_calls"] == [call]
    item = {"type": "function_call", "call_id": "c", "name": "add", "arguments": arguments}
    (turn,) = read_items(Body({"input": [item]}))
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert turn["tool_calls"][0]["function"]["arguments"] == written


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hello", "messages"),
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "wizard", "content": "a"}], "messages[0].role"),
        ([*HELLO, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "tool", "content": "a"}], "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "function_call": {}}], "messages[0].function_call"),
    ],
)
def test_a_wrong_message_is_named(messages: Any, param: str) -> None:
    assert refused(messages=messages).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"best_of": 2}, {"guided_decoding_backend": "x"},
        {"guided_whitespace_pattern": " "}, {"logits_processors": ["x"]},
        {"audio": {}}, {"modalities": ["audio"]}, {"priority": 1},
        {"documents": [{}]}, {"add_special_tokens": True},
        {"echo": True}, {"functions": []}, {"function_call": "auto"},
        {"moderation": {}},
    ],
)  # fmt: skip
def test_what_the_engine_does_not_do_is_refused_by_name(fields: dict[str, Any]) -> None:
    error = refused(**fields)
    assert (error.param, error.code) == (next(iter(fields)), "unsupported_parameter")
    assert error.param in str(error)


def test_neutral_values_of_refused_fields_pass() -> None:
    request = chat(best_of=2, n=2, store=False, modalities=["text"], priority=0, echo=False)
    assert request.notes == []


def test_fields_without_effect_are_noted() -> None:
    request = chat(user="u", service_tier="flex", metadata={"a": "b"}, verbosity="low")
    assert [note.split(" has no effect")[0] for note in request.notes] == [
        "verbosity",
        "user",
        "metadata",
        "service_tier",
    ]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"temperature": -1}, "temperature", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 129}, "n", "invalid_value"),
        ({"n": 1.5}, "n", "invalid_type"),
        ({"seed": 1 << 63}, "seed", "invalid_value"),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"stop": [""]}, "stop", "invalid_value"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "invalid_value"),
        ({"allowed_token_ids": [1], "guided_regex": "a"}, "allowed_token_ids", "invalid_value"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "invalid_value"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"5": True}}, "logit_bias", "invalid_type"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_type"),
        ({"logit_bias": {"1": 1}, "logits_processors_args": {"logit_bias": {}}}, "logit_bias",
         "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_tokens", "invalid_value"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema",
         "missing_required_parameter"),
        ({"response_format": {"type": "text", "x": 1}}, "response_format.x", "unknown_parameter"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format",
         "invalid_value"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs",
         "invalid_value"),
        ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
        ({"tools": [TOOL] * 129}, "tools", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name",
         "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "mul"}}},
         "tool_choice", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"stream": True, "stream_options": {"include_timings": True}},
         "stream_options.include_timings", "invalid_value"),
        ({"reasoning_effort": "most"}, "reasoning_effort", "invalid_value"),
        ({"x" * 10_000: 1}, ("x" * 10_000)[:200], "unknown_parameter"),
    ],
)  # fmt: skip
def test_wrong_values_are_named(fields: dict[str, Any], param: str, code: str) -> None:
    error = refused(**fields)
    assert (error.param, error.code) == (param, code)
    assert len(str(error)) < 500
    assert error.body()["error"]["type"] == "invalid_request_error"


def test_a_misspelt_field_is_answered_with_the_right_name() -> None:
    assert "did you mean 'temperature'?" in str(refused(temprature=1))


def test_what_a_call_of_the_engine_takes() -> None:
    given = chat(tools=[TOOL], enable_thinking=False).call_arguments()
    assert given["tools"] == [TOOL]
    assert given["chat_template_kwargs"] == {"enable_thinking": False}
    assert chat(tools=[TOOL], tool_choice="none").call_arguments()["tools"] is None


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]])],
)
def test_the_forms_of_prompts(prompt: Any, prompts: Any) -> None:
    request = read_completion({"prompt": prompt})
    assert request.prompts == prompts
    assert request.call_prompts() == prompts
    assert request.params.max_tokens == 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 100}, "n"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "messages": HELLO}, "messages"),
    ],
)
def test_wrong_completions_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_completion(fields)
    assert caught.value.param == param


def test_echo_asks_for_the_prompts_log_probabilities() -> None:
    params = read_completion({"prompt": "a", "echo": True, "logprobs": 2}).params
    assert (params.logprobs, params.prompt_logprobs) == (2, 2)


def test_special_tokens_are_added_where_asked() -> None:
    request = read_completion({"prompt": "a", "add_special_tokens": True})
    assert request.call_prompts() == [{"prompt": "a", "add_special_tokens": True}]


UNKNOWN = "unknown_parameter"


def error_code(read: Any, body: dict[str, Any]) -> str | None:
    try:
        read(body)
    except ProtocolError as error:
        return error.code
    return None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["messages", "prompt", "n", "stop", "tools", "tool_choice", "logit_bias", "response_format",
     "logprobs", "stream_options", "structured_outputs", "guided_json", "stop_token_ids",
     "bad_words", "seed", "max_tokens", "chat_template_kwargs", "best_of", "top_logprobs"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(FIELDS, JSON, max_size=4), st.booleans())
def test_any_json_is_read_or_refused(fields: dict[str, Any], as_chat: bool) -> None:
    read: Any = read_chat if as_chat else read_completion
    whole = {"messages": HELLO, **fields} if as_chat else {"prompt": "a", **fields}
    with contextlib.suppress(ProtocolError):
        read(whole)


@pytest.mark.parametrize("value", [None, 5, "a", [], [{}]])
def test_a_body_is_an_object(value: Any) -> None:
    for read in (read_chat, read_completion):
        with pytest.raises(ProtocolError, match="must be a JSON object"):
            read(value)


def test_every_field_of_openais_client_is_known() -> None:
    types = pytest.importorskip("openai.types")
    from openai.types.chat import completion_create_params

    kinds = [
        (read_chat, {"messages": HELLO}, completion_create_params),
        (read_completion, {"prompt": "a"}, types.completion_create_params),
    ]
    for read, least, params in kinds:
        typed = (params.CompletionCreateParamsBase, params.CompletionCreateParamsStreaming)
        names = {name for each in typed for name in each.__annotations__}
        assert len(names) > 15
        assert not [name for name in names if error_code(read, least | {name: 0}) == UNKNOWN]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")],
)
def test_errors_have_openais_shape(status: int, kind: str) -> None:
    assert error_body(status, "no") == {
        "error": {"message": "no", "type": kind, "param": None, "code": status}
    }
