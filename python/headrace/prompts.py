"""What callers may pass as prompts, made into token ids."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import TemplateError, UnsupportedError
from headrace.options.tools import ToolChoice, read_tool_choice
from headrace.quoting import checked_text, quoted
from headrace.text.templates.chat_template import checked_variables
from headrace.text.templates.messages import parse_messages
from headrace.text.tokenizer import Tokenizer

_PROMPT_KEYS = ("prompt", "prompt_token_ids", "messages")
_DICT_KEYS = frozenset(
    {
        "prompt",
        "prompt_token_ids",
        "completion_token_ids",
        "messages",
        "multimodal_data",
        "bad_words",
        "add_special_tokens",
        "tools",
        "tool_choice",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "request_id",
    }
)


@dataclass(slots=True)
class PromptParts:
    """What a prompt says about its outputs.

    opening: the text that decides where they begin, or the prompt's ids.
    """

    opening: str | Sequence[int] = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)


@dataclass(slots=True)
class Prompt:
    """A prompt the engine can run."""

    token_ids: list[int]
    shown: Any  # what RequestOutput.prompt says
    bad_words: Sequence[str] = ()
    request_id: str | None = None
    parts: PromptParts = field(default_factory=PromptParts)


@dataclass(slots=True)
class ChatOptions:
    """What applies to all conversations of a call.

    template: of the caller: text, or the name of one of the model's. default_template: text, in
        case there is none.
    """

    template: str | None = None
    kwargs: Mapping[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    default_template: str | None = None
    finds_opening: bool = False  # a reasoning parser wants to know where outputs begin
    max_tokens: int | None = None  # of a prompt: what can't be so few isn't tokenized
    choice: ToolChoice = field(init=False)
    variables: dict[str, Any] = field(init=False)
    add_generation_prompt: bool = field(init=False)

    def __post_init__(self) -> None:
        names = [tool["function"]["name"] for tool in self.tools or ()]
        self.choice = read_tool_choice(self.tool_choice, names)
        self.variables = checked_variables(self.kwargs)
        self.template = self.variables.pop("chat_template", None) or self.template
        self.add_generation_prompt = self.variables.pop("add_generation_prompt", True)


def prompt_list(prompts: Any) -> list[Any]:
    """The prompts of a call, one item each. Raises TypeError or ValueError for a wrong form."""
    if prompts is None:
        raise ValueError("prompts and prompt_ids cannot be both None.")
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Mapping):
        if not any(_present(prompts.get(key)) for key in _PROMPT_KEYS):
            raise ValueError(
                "prompts must be a input dict with 'prompt', 'prompt_token_ids' or 'messages', "
                f"got the keys {sorted(map(str, prompts))}"
            )
        return [prompts]
    items = _as_list(prompts)
    if items is None:
        raise _wrong_type(prompts)
    if items and _is_id(items[0]):
        return [items]
    for item in items:
        if not isinstance(item, (str, Mapping)) and _as_list(item) is None:
            raise _wrong_type(item)
    return items


def read_prompt(item: Any, tokenizer: Tokenizer | None, chat: ChatOptions) -> Prompt:
    """Raises ValueError or TypeError for a bad prompt. Never changes `item`."""
    if isinstance(item, str):
        ids = _encode(tokenizer, item, max_tokens=chat.max_tokens)
        return Prompt(ids, item, parts=PromptParts(item))
    if isinstance(item, Mapping):
        return _read_dict(item, tokenizer, chat)
    ids = _ids(item, "prompt_token_ids")
    return Prompt(ids, item, parts=PromptParts(ids))


def _read_dict(item: Mapping[str, Any], tokenizer: Tokenizer | None, chat: ChatOptions) -> Prompt:
    unknown = sorted(str(key) for key in item if key not in _DICT_KEYS)
    if unknown:
        warnings.warn(f"prompt: unknown keys {', '.join(unknown)} have no effect", stacklevel=2)
    if any(_present(value) for value in (item.get("multimodal_data") or {}).values()):
        raise UnsupportedError(
            "multimodal_data: this version of Headrace runs text models only; leave it out"
        )
    parts: PromptParts | None = None
    add_special = bool(item.get("add_special_tokens", False))
    if _present(item.get("prompt_token_ids")):
        ids = _ids(item["prompt_token_ids"], "prompt_token_ids")
    elif isinstance(item.get("prompt"), str):
        ids = _encode(tokenizer, item["prompt"], add_special, chat.max_tokens)
    elif _present(item.get("prompt")):
        ids = _ids(item["prompt"], "prompt")
    elif item.get("messages"):
        own = ChatOptions(
            item.get("chat_template") or chat.template,
            item.get("chat_template_kwargs"),
            tool_list(item.get("tools")),
            item.get("tool_choice"),
            default_template=chat.default_template,
            finds_opening=chat.finds_opening,
            max_tokens=chat.max_tokens,
        )
        if "add_generation_prompt" in item:
            own.add_generation_prompt = bool(item["add_generation_prompt"])
        conversation = read_conversation(item["messages"], tokenizer, own)
        ids, parts = conversation.token_ids, conversation.parts
    else:
        raise ValueError("Request must contain 'prompt_token_ids', 'prompt', or 'messages'")
    if _present(item.get("completion_token_ids")):
        ids = ids + _ids(item["completion_token_ids"], "completion_token_ids")
        parts = None if parts is None else replace(parts, opening=ids)
    bad_words = item.get("bad_words") or ()
    if isinstance(bad_words, str) or not all(isinstance(word, str) for word in bad_words):
        raise TypeError(f"bad_words must be a list of strings, got {quoted(bad_words)}")
    request_id = item.get("request_id")
    if request_id is not None:
        request_id = checked_text(str(request_id), "request_id")
    return Prompt(ids, item, bad_words, request_id, parts or PromptParts(ids))


def conversation_list(messages: Any) -> list[Any]:
    """The conversations of a call, one item each. Raises TypeError for a wrong form.

    As in FastDeploy, an item may also be a text (what a user says), token ids, or a dict for
    `generate`.
    """
    items = None if isinstance(messages, (str, Mapping)) else _as_list(messages)
    if items is None:
        raise TypeError(f"messages must be a list of messages, got {type(messages).__name__}")
    if items and isinstance(items[0], Mapping) and not _is_prompt(items[0]):
        return [items]
    for item in items:
        if not (isinstance(item, str) or _is_prompt(item) or _is_list(item)):
            raise TypeError(f"a conversation must be a list of messages, got {type(item).__name__}")
    return items


def read_conversation(messages: Any, tokenizer: Tokenizer | None, chat: ChatOptions) -> Prompt:
    """Raises ValueError for a bad conversation or template."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    elif _is_prompt(messages) or _is_id(next(iter(_as_list(messages) or ()), None)):
        return read_prompt(messages, tokenizer, chat)
    parsed = parse_messages(messages)
    if tokenizer is None:
        raise ValueError("chat needs a tokenizer, and the model folder has none")
    template = _checked_template(tokenizer, chat.template) or chat.default_template
    tools = None if chat.choice.kind == "none" else chat.tools
    text = tokenizer.apply_chat_template(
        parsed,
        tools=tools,
        chat_template=template,
        add_generation_prompt=chat.add_generation_prompt,
        tokenize=False,
        **chat.variables,
    )
    if tools or chat.kwargs:
        _check_read(tokenizer.template_variables(template, bool(tools)), tools, chat)
    # Without tools there are no calls to look for.
    choice = chat.choice if tools else ToolChoice("none")
    parts = PromptParts(_opening(tokenizer, template, chat, text), tools or (), choice)
    return Prompt(tokenizer.encode(text, max_tokens=chat.max_tokens), text, parts=parts)


def _opening(tokenizer: Tokenizer, template: str | None, chat: ChatOptions, text: str) -> str:
    """What the template puts before the answer; the whole text where that isn't known."""
    if not (chat.finds_opening and chat.add_generation_prompt):
        return text
    try:
        opening = tokenizer.generation_prompt(template, chat.variables)
    except TemplateError:  # some refuse the conversation that is made for it
        return text
    return opening if opening and text.endswith(opening) else text


def _checked_template(tokenizer: Tokenizer, template: str | None) -> str | None:
    """Raises ValueError for a misspelt name: no template is without any mark."""
    names = tokenizer.chat_templates
    if template and template not in names and not any(mark in template for mark in "{}\n"):
        raise ValueError(
            f"chat_template {quoted(template)} is neither a template nor the name of one of the "
            f"model's: {', '.join(sorted(names)) or 'it has none'}"
        )
    return template


def _check_read(read: frozenset[str], tools: Any, chat: ChatOptions) -> None:
    """Warns of what the caller gave and the template doesn't read; tools raise ValueError."""
    if tools and "tools" not in read:
        raise ValueError(
            "tools: this model's chat template doesn't show them; leave them out, or pass a "
            "chat_template that does"
        )
    for name in chat.kwargs or ():
        if name in chat.variables and name not in read:
            warnings.warn(
                f"chat_template_kwargs: {quoted(name)} has no effect: the chat template doesn't "
                "read it",
                stacklevel=2,
            )


def tool_list(tools: Any) -> list[dict[str, Any]] | None:
    """Tool definitions as dicts; accepts one or several, as dicts or objects with model_dump().

    Raises RuntimeError for a malformed one.
    """
    if tools is None:
        return None
    items = tools if isinstance(tools, (list, tuple)) else [tools]
    return [_tool(item) for item in items] or None


def _tool(item: Any) -> dict[str, Any]:
    if hasattr(item, "model_dump"):
        item = item.model_dump(exclude_none=True)
    function = item.get("function") if isinstance(item, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    kind = item.get("type", "function") if isinstance(item, Mapping) else None
    if kind != "function" or not isinstance(name, str) or not name:
        raise RuntimeError(
            "Failed to validate 'tools' parameter in chat method: expected "
            f"{{'type': 'function', 'function': {{'name': ...}}}}, got {quoted(item)}"
        )
    return {"type": "function", **item}


def _encode(
    tokenizer: Tokenizer | None,
    text: str,
    add_special_tokens: bool = False,
    max_tokens: int | None = None,
) -> list[int]:
    if tokenizer is None:
        raise ValueError(
            "the model folder has no tokenizer: name one by tokenizer, or pass token ids, not text"
        )
    return tokenizer.encode(text, add_special_tokens, max_tokens=max_tokens)


def _ids(value: Any, name: str) -> list[int]:
    items = _as_list(value)
    if items is not None and set(map(type, items)) == {int}:
        ids = list(items)  # the caller's list may change
    elif items is None or not all(_is_id(item) for item in items):
        raise TypeError(f"{name} must be a list of token ids, got {quoted(value)}")
    else:
        ids = [operator.index(item) for item in items]
    largest = max(ids, key=abs, default=0)
    if largest.bit_length() > 63:
        raise ValueError(f"{name} has {quoted(largest)}, which is no token id")
    return ids


def _is_id(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _as_list(value: Any) -> list[Any] | None:
    """Lists, tuples, and arrays that have tolist()."""
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    converted = value.tolist() if hasattr(value, "tolist") else None
    return converted if isinstance(converted, list) else None


def _is_list(value: Any) -> bool:
    return not isinstance(value, (str, Mapping)) and _as_list(value) is not None


def _is_prompt(value: Any) -> bool:
    """A dict for `generate`, not a message."""
    return (
        isinstance(value, Mapping)
        and "role" not in value
        and any(_present(value.get(key)) for key in _PROMPT_KEYS)
    )


def _present(value: Any) -> bool:
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)


def _wrong_type(value: Any) -> TypeError:
    return TypeError(
        f"Invalid type for 'prompt': {type(value)}, expected one of ['str', 'list', 'dict']."
    )
