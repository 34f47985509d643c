"""LLM.chat over the fake engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest
from headrace.entrypoints.openai.protocol import ChatCompletionToolsParam, FunctionDefinition

from headrace import LLM, RequestOutput, SamplingParams

Make = Callable[..., LLM]
HI = [{"role": "user", "content": "hi"}]


def chat(llm: LLM, messages: Any, params: Any = None, **how: Any) -> list[RequestOutput]:
    return llm.chat(messages, params, use_tqdm=False, **how)


def test_one_conversation(llm: LLM) -> None:
    (output,) = chat(llm, HI)
    assert output.prompt == "<s>User: hi\nAssistant: "
    assert output.outputs is not None
    assert output.outputs.text == "User: hi\nAssistant: "  # the fake model's echo
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    assert tokenizer.decode(output.prompt_token_ids) == output.prompt


def test_several_conversations(llm: LLM) -> None:
    second = [{"role": "system", "content": "S"}, {"role": "user", "content": "yo"}]
    outputs = chat(llm, [HI, second])
    assert [output.prompt for output in outputs] == [
        "<s>User: hi\nAssistant: ",
        "<s>S\nUser: yo\nAssistant: ",
    ]
    assert chat(llm, []) == []


def test_a_message_text_is_no_special_token_by_accident(llm: LLM) -> None:
    (output,) = chat(llm, HI)
    assert output.prompt_token_ids.count(1) == 1  # the template's own <s>, none added


@pytest.mark.parametrize(
    ("kwargs", "prompt"),
    [
        (None, "<s>User: hi\nAssistant: "),
        ({}, "<s>User: hi\nAssistant: "),
        ({"enable_thinking": True}, "<s>User: hi\nAssistant: "),
        ({"enable_thinking": False}, "<s>User: hi\n[plain]Assistant: "),
        ({"add_generation_prompt": False}, "<s>User: hi\n"),
        ({"chat_template": "{{ colour }}!", "colour": "red"}, "red!"),
    ],
)
def test_template_kwargs(llm: LLM, kwargs: Any, prompt: str) -> None:
    before = copy.deepcopy(kwargs)
    assert chat(llm, HI, chat_template_kwargs=kwargs)[0].prompt == prompt
    assert kwargs == before


def test_which_template(make_llm: Make, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("from a file")
    assert chat(make_llm(), HI, chat_template="{{ 'for' }} the call")[0].prompt == "for the call"
    llm = make_llm(chat_template=str(path))
    assert llm.chat_template == "from a file"
    assert chat(llm, HI)[0].prompt == "from a file"
    assert chat(llm, HI, chat_template="for the\ncall")[0].prompt == "for the\ncall"
    (refused,) = chat(llm, HI, chat_template="tool_usee")  # a misspelt name is no template
    assert refused.error_code == 400
    assert "'tool_usee' is neither a template nor the name of one" in (refused.error_msg or "")
    with pytest.raises(ValueError, match="looks like a file path"):
        make_llm(chat_template="missing.jinja")


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


class ToolObject:
    def model_dump(self, exclude_none: bool) -> dict[str, Any]:
        return dict(TOOL)


@pytest.mark.parametrize("tools", [TOOL, [TOOL], ToolObject(), [{"function": TOOL["function"]}]])
def test_tools(llm: LLM, tools: Any) -> None:
    template = "{{ tools[0].type }} {{ tools[0].function.name }} {{ tools | length }}"
    assert chat(llm, HI, tools=tools, chat_template=template)[0].prompt == "function f 1"


def test_what_the_template_does_not_read_warns(llm: LLM) -> None:
    with pytest.warns(UserWarning, match="'enable_thinkng' has no effect"):
        chat(llm, HI, chat_template_kwargs={"enable_thinkng": False})


def test_tools_that_the_template_does_not_show_are_an_error(llm: LLM) -> None:
    (output,) = chat(llm, HI, tools=TOOL, chat_template="{{ messages[0].content }}")
    assert output.error_code == 400
    assert "doesn't show them" in (output.error_msg or "")


def test_texts_ids_and_prompts_in_the_place_of_conversations(llm: LLM) -> None:
    spoken = chat(llm, [[{"role": "user", "content": text}] for text in ("Hello", "Bye")])
    assert [o.prompt for o in chat(llm, ["Hello", "Bye"])] == [o.prompt for o in spoken]
    (generated,) = llm.generate([5, 6, 7], use_tqdm=False)
    for messages in ([[5, 6, 7]], [{"prompt": "", "prompt_token_ids": [5, 6, 7]}]):
        (output,) = chat(llm, messages)
        assert output.prompt_token_ids == [5, 6, 7]
        assert output.outputs == generated.outputs


def test_fastdeploys_class_of_tools(llm: LLM) -> None:
    tool = ChatCompletionToolsParam(type="function", function={"name": "f", "parameters": {}})
    assert tool.model_dump(exclude_none=True) == TOOL
    assert tool == ChatCompletionToolsParam(function=FunctionDefinition("f", None, {}))
    template = "{{ tools | tojson }}"
    (output,) = chat(llm, HI, tools=[tool, TOOL], chat_template=template)
    assert output.prompt == json.dumps([TOOL, TOOL])
    with pytest.warns(UserWarning, match="no effect of strict"):
        ChatCompletionToolsParam(function={"name": "f", "strict": True})
    bad: list[dict[str, Any]] = [
        {"function": {"description": "no name"}},
        {"function": 5},
        {"type": "tool", "function": {"name": "f"}},
        {"function": {"name": "f", "parameters": []}},
    ]
    for values in bad:
        with pytest.raises(ValueError, match="must be"):
            ChatCompletionToolsParam(**values)


@pytest.mark.parametrize(
    "tools", ["f", [5], {"function": {}}, [{"name": "f"}], {**TOOL, "type": "tool"}]
)
def test_malformed_tools(llm: LLM, tools: Any) -> None:
    with pytest.raises(RuntimeError, match="Failed to validate 'tools' parameter in chat method"):
        chat(llm, HI, tools=tools)


def test_the_conversation_stays_unchanged(llm: LLM) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    before = copy.deepcopy(messages)
    assert chat(llm, messages)[0].prompt == "<s>User: hi\nAssistant: "
    assert messages == before


@pytest.mark.parametrize(
    "messages", ["hi", {"role": "user", "content": "hi"}, 5, [HI, 5], [{1}, HI]]
)
def test_wrong_form_of_the_call(llm: LLM, messages: Any) -> None:
    with pytest.raises(TypeError, match="must be a list of messages"):
        chat(llm, messages)


def test_as_many_params_as_conversations(llm: LLM) -> None:
    with pytest.raises(ValueError, match="messages and sampling_params must be the same length"):
        chat(llm, [HI, HI], [SamplingParams()] * 3)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (["enable_thinking"], "Invalid input: chat_template_kwargs must be a dict"),
        ({"messages": []}, "'messages' is set by the engine"),
    ],
)
def test_bad_template_kwargs(llm: LLM, kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chat(llm, HI, chat_template_kwargs=kwargs)


def test_one_bad_conversation_costs_the_others_nothing(llm: LLM) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    outputs = chat(llm, [HI, picture, [{"role": "user"}], [], HI])
    assert [output.error_code for output in outputs] == [200, 400, 400, 400, 200]
    assert "reads text only" in (outputs[1].error_msg or "")
    assert outputs[0].outputs is not None
    assert outputs[1].outputs is not None
    assert outputs[1].outputs.finish_reason == "error"
    assert outputs[4].prompt == outputs[0].prompt


def test_a_template_may_refuse(llm: LLM) -> None:
    template = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}x"
    refused = [{"role": "assistant", "content": "hi"}]
    outputs = chat(llm, [HI, refused], chat_template=template)
    assert [(output.error_code, output.error_msg) for output in outputs] == [
        (200, None),
        (400, "user first"),
    ]


def test_a_model_without_a_template(make_llm: Make, tmp_path: Path) -> None:
    llm = make_llm(model_folders.byte_level_folder(tmp_path, chat_template=None))
    assert chat(llm, HI)[0].error_msg == "This model does not support chat_template."


def test_a_model_without_a_tokenizer(make_llm: Make, tmp_path: Path) -> None:
    model_folders.write_config(tmp_path, 64)
    assert "chat needs a tokenizer" in (chat(make_llm(tmp_path), HI)[0].error_msg or "")


def test_another_tokenizer(make_llm: Make, tmp_path: Path, toy_folder: Path) -> None:
    model_folders.write_config(tmp_path, 512)
    llm = make_llm(tmp_path, tokenizer=str(toy_folder))
    assert chat(llm, HI)[0].prompt == "<s>User: hi\nAssistant: "
