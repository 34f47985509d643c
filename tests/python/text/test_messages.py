"""Conversations as callers write them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UnsupportedError
from headrace.text.templates.messages import parse_messages


def content(value: Any) -> str:
    (message,) = parse_messages([{"role": "user", "content": value}])
    return str(message["content"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a", {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_content(given: Any, expected: str) -> None:
    assert content(given) == expected


@pytest.mark.parametrize("kind", ["image_url", "image", "video_url", "video"])
def test_media_are_for_vision_models(kind: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": kind, kind: {"url": "x"}}, "b"]
    with pytest.raises(UnsupportedError, match=f"'{kind}': this model reads text only"):
        content(parts)
    (message,) = parse_messages([{"role": "user", "content": parts}], media=True)
    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": kind.removesuffix("_url")},
        {"type": "text", "text": "b"},
    ]


def test_sounds_are_for_no_model() -> None:
    for kind in ("audio", "audio_url", "input_audio"):
        with pytest.raises(UnsupportedError, match="no models that hear"):
            parse_messages([{"role": "user", "content": [{"type": kind}]}], media=True)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "messages must not be empty"),
        (["hi"], "a message must be a dict, got str"),
        ([{"content": "x"}], "a message must have a role, got None"),
        ([{"role": 5, "content": "x"}], "a message must have a role, got 5"),
        ([{"role": "user"}], "the message of role 'user' has no content"),
        ([{"role": "user", "tool_calls": 5}], "tool_calls must be a list, got 5"),
        ([{"role": "user", "content": "x", "tool_calls": {"a": 1}}], "tool_calls must be a list"),
        ([{"role": "user", "content": 5}], "must be a string or a list of parts, got int"),
        ([{"role": "user", "content": [{"type": "smell"}]}], "Unknown content part type: smell"),
        ([{"role": "user", "content": [{"type": "text"}]}], "a text part must have a string"),
    ],
)
def test_malformed(messages: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_messages(messages)


def test_tool_calls_are_read() -> None:
    calls = [
        {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "2", "function": {"name": "g", "arguments": "not json"}},
        {"id": "3", "function": {"name": "h", "arguments": "[" * 100_000}},
    ]
    original = [{"role": "assistant", "content": None, "tool_calls": calls, "extra": 1}]
    (message,) = parse_messages(original)
    assert message["content"] == ""
    assert message["extra"] == 1
    assert message["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert message["tool_calls"][1]["function"]["arguments"] == {"INVALID_JSON": "not json"}
    deep = {"INVALID_JSON": "[" * 100_000}
    assert message["tool_calls"][2]["function"]["arguments"] == deep
    assert calls[0]["function"] == {"name": "f", "arguments": '{"a": 1}'}  # the caller's


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        (None, {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('""', {}),
        ('{"a": 1', {"INVALID_JSON": '{"a": 1'}),
        ("[1]", {"INVALID_JSON": [1]}),
        ('{"a": NaN}', {"INVALID_JSON": '{"a": NaN}'}),
        ("-Infinity", {"INVALID_JSON": "-Infinity"}),
    ],
)
def test_arguments_of_earlier_calls_are_objects(written: Any, read: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    (message,) = parse_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": read}


@pytest.mark.parametrize("name", ["reasoning", "thinking"])
def test_earlier_thoughts_reach_templates_by_one_name(name: str) -> None:
    (message,) = parse_messages([{"role": "assistant", "content": "a", name: "thought"}])
    assert message["reasoning_content"] == "thought"
    both = {"role": "assistant", "content": "a", name: "b", "reasoning_content": "c"}
    assert parse_messages([both])[0]["reasoning_content"] == "c"
