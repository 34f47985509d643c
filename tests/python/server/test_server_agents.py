"""What agents send: hints and tools of the vendors' own servers are left out and named, tools of
the client work, and what would change the answer is an error."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from headrace.protocol.chat import read_chat
from headrace.protocol.errors import ProtocolError
from headrace.server.anthropic.request import read_anthropic
from headrace.server.errors import context_length_error
from headrace.server.responses.request import read_responses
from serving import PlayedLLM, events, serving, tokenizer_folder

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"type": "function", "name": "f", "strict": False, "parameters": SCHEMA}
SPAWN = {"type": "function", "name": "spawn", "parameters": SCHEMA}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
CODEX = {
    "model": "m",
    "instructions": "Be kind",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ],
    "tools": [
        FUNCTION,
        {"type": "namespace", "name": "agents", "description": "Of agents", "tools": [SPAWN]},
        PATCH,
        {"type": "web_search", "external_web_access": False},
        {"type": "image_generation", "output_format": "png"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "high", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "prompt_cache_key": "k",
    "client_metadata": {"session_id": "s"},
    "text": {"verbosity": "low"},
}  # fmt: skip
HOSTED_ITEM = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}


def called(name: str, arguments: str) -> list[Any]:
    """A call in two increments."""
    cut = len(arguments) // 2
    function = {"name": name, "arguments": arguments[:cut]}
    return [
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": arguments[cut:]}}]},
    ]


def posted(path: str, body: Any, llm: PlayedLLM | None = None) -> httpx.Response:
    with serving(llm or PlayedLLM()) as url:
        return httpx.post(f"{url}{path}", json=body)


def test_hints_and_hosted_tools_of_codex_are_left_out_and_named() -> None:
    llm = PlayedLLM()
    answer = posted("/v1/responses", CODEX, llm)
    assert answer.status_code == 200, answer.text
    warned = answer.headers["x-headrace-warnings"]
    for name in ("client_metadata", "web_search", "image_generation", "text.verbosity",
                 "tools[2].format", "web_search_call.action", "prompt_cache_key"):  # fmt: skip
        assert name in warned, name
    shown = [tool["function"] for tool in llm.calls[0]["tools"]]
    assert [tool["name"] for tool in shown] == ["f", "agents__spawn", "apply_patch"]
    assert "start: /.+/" in shown[2]["description"]
    assert answer.json()["tools"] == CODEX["tools"]


def test_calls_of_custom_tools_and_namespaces_come_in_the_client_s_words() -> None:
    patch = json.dumps({"input": "*** a\n+b"})
    whole = posted("/v1/responses", CODEX, PlayedLLM(called("apply_patch", patch))).json()
    (item,) = whole["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch",
                                                            "*** a\n+b")  # fmt: skip
    streamed = events(
        posted(
            "/v1/responses", {**CODEX, "stream": True}, PlayedLLM(called("apply_patch", patch))
        ).text
    )
    kinds = [name for name, _ in streamed]
    assert "response.function_call_arguments.delta" not in kinds
    done = next(data for name, data in streamed if name == "response.custom_tool_call_input.done")
    assert done["input"] == "*** a\n+b"
    whole = posted("/v1/responses", CODEX, PlayedLLM(called("agents__spawn", '{"a": 1}'))).json()
    (item,) = whole["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "agents", "spawn")
    assert json.loads(item["arguments"]) == {"a": 1}


def test_a_conversation_with_custom_calls_goes_on() -> None:
    llm = PlayedLLM()
    items = [
        *CODEX["input"],
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        HOSTED_ITEM,
        {"type": "function_call", "call_id": "c2", "namespace": "agents", "name": "spawn",
         "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "1"},
    ]  # fmt: skip
    answer = posted("/v1/responses", {**CODEX, "input": items}, llm)
    assert answer.status_code == 200, answer.text
    assert "input[3] is left out" in answer.headers["x-headrace-warnings"]
    calls = [m["tool_calls"][0]["function"] for m in llm.calls[0]["messages"] if "tool_calls" in m]
    assert calls == [
        {"name": "apply_patch", "arguments": '{"input": "x"}'},
        {"name": "agents__spawn", "arguments": "{}"},
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "functoin", "name": "f"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto",
                          "tools": [{"type": "function", "name": "g"}]}}, "tool_choice"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"client_metdata": {}}, "client_metdata"),
        ({"include": ["file.contents"]}, "include"),
    ],
)  # fmt: skip
def test_what_would_change_an_answer_is_an_error(fields: Any, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_responses({**CODEX, **fields})
    assert caught.value.param == param


def test_allowed_tools_are_those_that_are_shown() -> None:
    allowed = [{"type": "custom", "name": "apply_patch"}, {"type": "web_search"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    tools = read_responses({**CODEX, "tool_choice": choice}).chat.tools
    assert [tool["function"]["name"] for tool in tools.shown] == ["apply_patch"]
    assert (tools.wanted.kind, tools.wanted.parallel) == ("required", False)


def test_the_time_for_tools_grows_as_their_number() -> None:
    def seconds(count: int) -> float:
        tools = [{"type": "function", "name": f"f{i}"} for i in range(count)]
        named = {"type": "namespace", "name": "n", "tools": tools}
        start = time.thread_time()
        with pytest.raises(ProtocolError, match="at most 128"):
            read_responses({"input": "x", "tools": [*tools, named]})
        return time.thread_time() - start

    few = min(seconds(500) for _ in range(3))
    assert min(seconds(5000) for _ in range(2)) < 30 * few  # 100 times if it were quadratic


def test_responses_take_sampling_fields() -> None:
    fields = {"top_k": 3, "min_p": 0.1, "seed": 7, "stop": "x", "repetition_penalty": 1.1,
              "logit_bias": {"5": 1}, "guided_regex": "a+"}  # fmt: skip
    params = read_responses({"input": "Hi", **fields}).chat.params
    assert (params.top_k, params.min_p, params.seed, params.stop) == (3, 0.1, 7, ["x"])
    assert params.guided_decoding.regex == "a+"
    with pytest.raises(ProtocolError) as caught:
        read_responses({"input": "Hi", "top_k": "x"})
    assert caught.value.param == "top_k"


READ = {"name": "Read", "input_schema": SCHEMA, "defer_loading": True,
        "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}}  # fmt: skip
CLAUDE = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [READ, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "speed": "fast",
    "thread": {"id": "t"},
    "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}],
    "output_config": {"effort": "high", "task_budget": {"type": "tokens", "total": 9}},
    "betas": ["context-management-2025-06-27"],
}
DOCUMENT = {
    "type": "document",
    "title": "Notes",
    "source": {"type": "text", "media_type": "text/plain", "data": "Tea is hot."},
    "citations": {"enabled": True},
}
TURNS = [
    {"role": "user", "content": [DOCUMENT, {"type": "text", "text": "Hi"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "text", "text": "So", "citations": [{"type": "char_location"}]},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {}, "caller": {
                "type": "code_execution_20250825", "tool_id": "s1"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "x"},
                {"type": "tool_reference", "tool_name": "Read"},
                {"type": "search_result", "source": "s", "title": "t",
                 "content": [{"type": "text", "text": "y"}]},
            ]},
        ],
    },
]  # fmt: skip


def test_input_tokens_of_responses_are_counted(tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    answer = posted("/v1/responses/input_tokens", {**CODEX, "input": "Hi"}, llm)
    assert answer.json()["object"] == "response.input_tokens"
    assert answer.json()["input_tokens"] > 2
    assert not llm.calls


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_hints_and_hosted_tools_of_claude_code(path: str, tmp_path: Path) -> None:
    llm = PlayedLLM(folder=tokenizer_folder(tmp_path))
    answer = posted(path, CLAUDE, llm)
    assert answer.status_code == 200, answer.text
    warned = answer.headers["x-headrace-warnings"]
    for name in ("tools[0].defer_loading", "tools[0].eager_input_streaming", "tools[1]",
                 "context_management", "speed", "thread", "mcp_servers", "betas",
                 "output_config.task_budget"):  # fmt: skip
        assert name in warned, name
    if llm.calls:
        assert [tool["function"]["name"] for tool in llm.calls[0]["tools"]] == ["Read"]


def test_documents_are_read_and_what_vendors_servers_made_is_left_out() -> None:
    request = read_anthropic({**CLAUDE, "messages": TURNS})
    shown = request.messages
    assert shown[0]["content"] == "Notes\nTea is hot.\nHi"
    assert shown[1]["content"] == "So"
    assert shown[2]["content"] == "x\nt\ns\ny"
    warned = "; ".join(request.notes)
    for name in ("messages[1].content[0] is left out", "messages[1].content[1] is left out",
                 "content[3].caller", "messages[2].content[0].content[1] is left out",
                 "messages[0].content[0].citations"):  # fmt: skip
        assert name in warned, name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [{"type": "websearch_x", "name": "w"}]}, "tools[0].type"),
        ({"tools": [], "tool_choice": {"type": "any"}}, "tool_choice"),
        (
            {"tool_choice": {"type": "tool", "name": "web_search"}},
            "there is no tool 'web_search'",
        ),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "document", "source": {"type": "base64", "data": "JVBERi0=",
                                                "media_type": "application/pdf"}}]}]},
            "only documents of text are read",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "must be one of"),
        ({"sped": "fast"}, "did you mean 'speed'"),
    ],
)  # fmt: skip
def test_what_would_change_a_message_is_an_error(fields: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(words)):
        read_anthropic({**CLAUDE, **fields})


def test_an_answer_that_is_begun_goes_on() -> None:
    begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]
    requests = [
        read_anthropic({**CLAUDE, "messages": begun}),
        read_chat({"messages": begun}),
        read_chat({"messages": begun, "continue_final_message": True,
                   "add_generation_prompt": False}),
    ]  # fmt: skip
    for request in requests:
        assert request.messages[-1]["content"] == "Well, "
        assert request.chat_template_kwargs["continue_final_message"] is True
    other = read_chat({"messages": begun, "add_generation_prompt": True})
    assert "continue_final_message" not in other.chat_template_kwargs


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("Length of input token(5000) exceeds the limit max_model_len(4096).", 5000),
        ("Input text is too long, length of prompt token(4096) + min_dec_len (1) > "
         "max_model_len(4096)", 4097),
        ("the text is too long: it has 90000 bytes, and 4096 tokens, the most that fit, hold at "
         "most 65536", 5625),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_told_in_the_clients_words(message: str, tokens: int) -> None:
    error = context_length_error(message)
    assert error is not None
    openai = error.body("/v1/chat/completions")["error"]
    assert openai["code"] == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in openai["message"]
    anthropic = error.body("/v1/messages")["error"]
    assert anthropic["message"] == f"prompt is too long: {tokens} tokens > 4096 maximum"
    assert anthropic["type"] == "invalid_request_error"


def test_the_engine_s_words_for_long_prompts_are_known(make_llm: Any) -> None:
    llm = make_llm(max_model_len=32)
    outputs = llm.generate([[5] * 33, [5] * 32, "x" * 200_000], use_tqdm=False)
    for output in outputs:
        assert context_length_error(output.error_msg) is not None, output.error_msg


def test_a_begun_answer_is_rendered_to_its_end_and_no_further(make_llm: Any) -> None:
    llm = make_llm()
    ask = {"role": "user", "content": "Hi"}
    begun = {"role": "assistant", "content": "Well, "}
    whole = llm.chat([ask, begun], chat_template_kwargs={"continue_final_message": True})[0]
    assert whole.prompt.endswith("Well, ")
    assert whole.prompt.startswith(llm.chat([ask], use_tqdm=False)[0].prompt[:3])
    for messages, kwargs in (([ask], {}), ([ask, begun], {"add_generation_prompt": True})):
        wrong = {"continue_final_message": True, **kwargs}
        with pytest.raises(ValueError, match="continue_final_message"):
            raise_errors(llm, messages, wrong)


def raise_errors(llm: Any, messages: Any, kwargs: Any) -> None:
    output = llm.chat(messages, chat_template_kwargs=kwargs, use_tqdm=False)[0]
    if output.error_code != 200:
        raise ValueError(output.error_msg)
