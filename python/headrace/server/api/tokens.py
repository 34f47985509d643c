"""POST /tokenize and /detokenize, with vLLM's bodies, and GET /tokenizer_info."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.types import ASGIApp

from headrace.protocol.body import Body
from headrace.protocol.errors import ProtocolError
from headrace.protocol.messages import read_messages
from headrace.protocol.tools import read_tools
from headrace.quoting import quoted
from headrace.server.endpoint import Call
from headrace.server.errors import ApiError
from headrace.server.limits import check_messages
from headrace.server.models import Target
from headrace.server.replies import json_reply

T = TypeVar("T")
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_MOST_IDS = 1 << 20
_LEAST_TEXT = 1 << 20  # characters that may be tokenized with every model,
_MOST_CHARS = 16  # and so many for each token of its context
_LONG_TEXT = 1 << 16


async def tokenize(call: Call) -> ASGIApp:
    """{"prompt": text} or {"messages": [...]} -> {"tokens": ids, "count", "max_model_len"}."""
    body = Body(call.body)
    target = call.state.models.find(body.text("model"))
    as_texts = body.flag("return_token_strs") or False
    read = await call.read(lambda _: _reader(call, target, body))
    body.finish()
    ids = await read()

    def answer() -> dict[str, Any]:
        known = {
            "count": len(ids),
            "max_model_len": target.model.llm.model_info.max_model_len,
            "tokens": ids,
        }
        if as_texts:
            known["token_strs"] = _tokenizer(target).convert_ids_to_tokens(ids)
        return known

    return await call.reply(answer, len(ids))


async def detokenize(call: Call) -> ASGIApp:
    """{"tokens": ids} -> {"prompt": text}."""
    body = Body(call.body)
    target = call.state.models.find(body.text("model"))
    body.required("tokens")
    ids = body.array("tokens") or []
    body.finish()
    size = target.model.llm.model_info.vocab_size
    await call.read(lambda _: _check_ids(ids, size))
    tokenizer = _tokenizer(target)
    text = await _in_thread(call, lambda: tokenizer.decode(ids), len(ids))
    return json_reply({"prompt": text})


async def tokenizer_info(call: Call) -> ASGIApp:
    """vLLM's: the special tokens and the chat template of the first model, or of ?model=NAME."""
    target = call.state.models.find(call.http.query_params.get("model"))
    tokenizer = _tokenizer(target)
    tokens = {name: getattr(tokenizer, name) for name in _SPECIAL_TOKENS}
    template = target.model.templates().get("default")
    return json_reply({**tokens, "chat_template": template})


def _check_ids(ids: list[Any], size: int) -> None:
    """Raises ProtocolError."""
    if len(ids) > _MOST_IDS:
        raise ProtocolError(
            f"tokens may have at most {_MOST_IDS} entries, got {len(ids)}", "tokens"
        )
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
            raise ProtocolError(
                f"tokens must be token ids below {size}, got {quoted(token)}", "tokens"
            )


async def conversation_ids(
    call: Call,
    target: Target,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    variables: Mapping[str, Any],
    add_generation_prompt: bool = True,
    add_special_tokens: bool = False,
) -> list[int]:
    """The ids that a chat would put before the model. Raises ApiError and ProtocolError."""
    check_messages(call.state.config, messages)
    _tokenizer(target)
    if "chat_template" in variables:
        raise ProtocolError("chat_template is not taken here", "chat_template")
    given = dict(variables)
    if not given.get("continue_final_message"):
        given.setdefault("add_generation_prompt", add_generation_prompt)
    llm = target.model.llm
    return await _in_thread(
        call,
        lambda: llm.conversation_ids(
            messages,
            tools=tools,
            chat_template_kwargs=given,
            add_special_tokens=add_special_tokens,
        ),
        _LONG_TEXT + 1 if call.large else 0,
    )


def _reader(call: Call, target: Target, body: Body) -> Callable[[], Awaitable[list[int]]]:
    """What makes ids of the body's prompt or messages."""
    add_special = body.flag("add_special_tokens")
    messages = body.take("messages")
    if messages is None:
        body.required("prompt")
        prompt = body.text("prompt") or ""
        most = max(_LEAST_TEXT, _MOST_CHARS * target.model.llm.model_info.max_model_len)
        if len(prompt) > most:
            raise ProtocolError(
                f"prompt has {len(prompt)} characters, and may have {most}: count the tokens of "
                "its parts",
                "prompt",
            )
        tokenizer = _tokenizer(target)
        # As vLLM has it: a text gets what the tokenizer adds unless it is told not to.
        return lambda: _in_thread(
            call, lambda: tokenizer.encode(prompt, add_special is not False), len(prompt)
        )
    body.refuse("prompt", "give either prompt or messages")
    conversation = read_messages(messages)
    generation_prompt = body.flag("add_generation_prompt") is not False
    tools = read_tools(body).shown
    variables = dict(body.mapping("chat_template_kwargs") or {})
    if body.flag("continue_final_message"):
        variables.setdefault("continue_final_message", True)
    return lambda: conversation_ids(
        call, target, conversation, tools, variables, generation_prompt, add_special or False
    )


def _tokenizer(target: Target) -> Any:
    tokenizer = target.model.llm.get_tokenizer()
    if tokenizer is None:
        raise ApiError("the model's folder has no tokenizer", code="unsupported")
    return tokenizer


async def _in_thread(call: Call, read: Callable[[], T], size: int) -> T:
    """In a place of its own kind: it costs no place in the engine, and waits for none. Raises
    ApiError, 429 if too many wait.

    size: characters or ids; what has many takes memory, too, so few such ones run at once.
    """
    try:
        async with call.state.text.place():
            if size > _LONG_TEXT:
                return await call.state.heavy.run(read)
            return await asyncio.to_thread(read)
    except (ValueError, TypeError) as error:
        raise ApiError(str(error), code="invalid_argument") from error
