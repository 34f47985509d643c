"""Bodies of /v1/chat/completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.llm.requests.preparation import text_size
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.protocol.beams import read_beams
from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.protocol.messages import read_messages
from headrace.protocol.own_prompt import read_ids, read_own_prompt
from headrace.protocol.sampling import (
    MOST_LOGPROBS,
    TOKEN_CHARACTERS,
    read_prompt_logprobs,
    read_sampling,
)
from headrace.protocol.stream_options import StreamOptions, read_stream_options
from headrace.protocol.tools import ToolUse, read_tools
from headrace.quoting import quoted

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


@dataclass(slots=True)
class ChatRequest:
    """A conversation to answer.

    model: as the caller named it; None: it named none.
    params: everything about sampling, with n, logprobs and the form of the output.
    chat_template, chat_template_kwargs, mm_processor_kwargs: as for LLM.chat.
    return_token_ids: the answer holds the token ids too.
    prompt_logprobs: of so many tokens, as vLLM's field asks for them.
    own_prompt: of read_own_prompt: ids that follow the conversation, or a prompt instead of it.
    beams: a beam search instead of sampling.
    request_id: chosen by the caller; None: the engine's.
    notes: fields that were given and have no effect, a sentence each.
    """

    model: str | None
    messages: list[dict[str, Any]]
    params: SamplingParams
    tools: ToolUse
    stream: StreamOptions
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    return_token_ids: bool = False
    request_id: str | None = None
    notes: list[str] = field(default_factory=list)
    mm_processor_kwargs: dict[str, Any] | None = None
    prompt_logprobs: int | None = None
    own_prompt: dict[str, Any] = field(default_factory=dict)
    beams: BeamSearchParams | None = None

    def start(self, llm: Any, lora: LoRARequest | None = None) -> list[Any]:
        """The requests of an AsyncLLM: one. Raises TypeError, ValueError."""
        arguments = self.call_arguments()
        if self.beams is None:
            return [llm.chat(**arguments, lora_request=lora)]
        del arguments["sampling_params"]
        prompt = {name: value for name, value in arguments.items() if value is not None}
        if self.own_prompt:
            (prompt,) = arguments["messages"]
        return [llm.beam_search(prompt, self.beams, lora_request=lora)]

    def call_arguments(self) -> dict[str, Any]:
        """The keyword arguments of LLM.chat and AsyncLLM.chat, besides LoRA's and the id."""
        conversation = {
            "messages": self.messages,
            "chat_template": self.chat_template,
            "chat_template_kwargs": self.chat_template_kwargs or None,
            "tools": self.tools.shown,
            "tool_choice": self.tools.wanted,
            "mm_processor_kwargs": self.mm_processor_kwargs,
        }
        if self.leaves_template_out:
            return {"messages": [self.own_prompt], "sampling_params": self.params}
        if self.own_prompt:
            given = {name: value for name, value in conversation.items() if value is not None}
            return {"messages": [given | self.own_prompt], "sampling_params": self.params}
        return {**conversation, "sampling_params": self.params}

    @property
    def leaves_template_out(self) -> bool:
        """Whether the prompt isn't made of the conversation."""
        return "prompt" in self.own_prompt or "prompt_token_ids" in self.own_prompt

    @property
    def prompt_size(self) -> int:
        """About how many tokens its prompt has."""
        ids = sum(len(part) for part in self.own_prompt.values())
        return ids + sum(text_size([message]) for message in self.messages) // TOKEN_CHARACTERS


def read_chat(value: Any) -> ChatRequest:
    """The request that a parsed JSON body describes.

    Each field works, or is noted as one without effect, or is refused by its name: ProtocolError.
    """
    body = Body(value)
    ids = read_ids(body, "prompt_token_ids")
    conversation = body.required("messages") if ids is None else body.take("messages")
    messages = read_messages(conversation) if conversation or ids is None else []
    variables = dict(body.mapping("chat_template_kwargs") or {})
    effort = body.choice("reasoning_effort", _EFFORTS)
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
    for name in ("enable_thinking", "add_generation_prompt", "continue_final_message"):
        given = body.flag(name)
        if given is not None:
            variables.setdefault(name, given)
    tools = read_tools(body)
    own_prompt = read_own_prompt(body, ids, messages, bool(tools.shown))
    if messages and not own_prompt:
        _read_continuing(messages, variables)
    limit = body.integer("max_completion_tokens")
    more = {} if limit is None else {"max_tokens": limit}
    if limit is not None and body.take("max_tokens") not in (None, limit):
        raise ProtocolError(
            "max_tokens and max_completion_tokens differ: leave max_tokens out", "max_tokens"
        )
    prompt_logprobs = read_prompt_logprobs(body)
    if prompt_logprobs is not None:
        more["prompt_logprobs"] = prompt_logprobs
    params = read_sampling(body, _logprobs(body), more)
    request = ChatRequest(
        body.text("model"),
        messages,
        params,
        tools,
        read_stream_options(body),
        body.text("chat_template"),
        variables,
        body.flag("return_token_ids") or False,
        body.text("request_id"),
        body.notes,
        body.mapping("mm_processor_kwargs") or None,
        prompt_logprobs,
        own_prompt,
    )
    if request.leaves_template_out and (request.chat_template or variables):
        body.notes.append("chat_template and its variables have no effect: no template is used")
    if prompt_logprobs is not None and request.stream.wanted:
        raise ProtocolError(
            "prompt_logprobs doesn't go with stream", "prompt_logprobs", "unsupported_value"
        )
    others = {"stream": request.stream.wanted, "tools": tools.shown is not None}
    request.beams = read_beams(body, params, others)
    _read_others(body)
    body.finish()
    return request


def _read_continuing(messages: list[dict[str, Any]], variables: dict[str, Any]) -> None:
    """An answer at the end is gone on with, unless the caller wants another after it."""
    if "continue_final_message" not in variables and not variables.get("add_generation_prompt"):
        last = messages[-1]
        begun = last["role"] == "assistant" and last["content"] and not last.get("tool_calls")
        if begun:
            variables["continue_final_message"] = True
    if variables.get("continue_final_message") and variables.get("add_generation_prompt"):
        raise ProtocolError(
            "continue_final_message and add_generation_prompt exclude each other",
            "continue_final_message",
        )
    if not variables.get("continue_final_message", True):
        del variables["continue_final_message"]


def _logprobs(body: Body) -> int | None:
    wanted = body.flag("logprobs")
    top = body.integer("top_logprobs")
    if top is not None and not 0 <= top <= MOST_LOGPROBS:
        raise ProtocolError(
            f"top_logprobs must be from 0 to {MOST_LOGPROBS}, got {quoted(top)}", "top_logprobs"
        )
    if top and not wanted:
        raise ProtocolError("top_logprobs needs logprobs: true", "top_logprobs")
    return (top or 0) if wanted else None


def _read_others(body: Body) -> None:
    """What OpenAI's servers and others know and this engine doesn't do."""
    body.refuse("audio", "the engine answers in text")
    body.refuse("modalities", "the engine answers in text", ["text"])
    body.note("web_search_options", "there is no web search")
    body.refuse("mm_hashes", "give uuid in the parts of content", [])
    body.refuse("documents", "put them into the messages", [])
    body.refuse("add_special_tokens", "the chat template adds them", False)
    body.refuse("echo", "is for /v1/completions", False)
    body.note("verbosity", "say in a message how long the answer should be", "medium")
    read_common_others(body)


def read_common_others(body: Body) -> None:
    """The same, of both kinds of body."""
    body.refuse("moderation", "nothing is moderated")
    body.note("store", "answers are not kept", False)
    body.refuse("priority", "requests have no priority here", 0)
    body.refuse("cache_salt", "equal beginnings of prompts are shared by all requests")
    body.note("prediction", "guesses come from the engine's own drafts")
    body.refuse("include_draft_logprobs", "drafts have no log-probabilities", False)
    body.refuse("include_logprobs_decode_token", "log-probabilities name tokens by text", True)
    body.refuse("disaggregate_info", "an engine does both prefill and decode")
    body.note("max_streaming_response_tokens", "pieces come as the tokens do")
    body.note("collect_metrics", "/metrics has them", False)
    body.note("trace_context", "nothing is traced")
    for name in ("user", "safety_identifier", "metadata"):
        body.note(name, "nothing is kept about users")
    for name in (
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    ):
        body.note(name, "equal beginnings of prompts are found without it")
    body.note("service_tier", "there is one tier", "auto", "default")
