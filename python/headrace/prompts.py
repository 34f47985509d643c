"""What callers may pass as prompts, made into token ids."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headrace.errors import TemplateError, UnsupportedError
from headrace.media.item import MediaItem
from headrace.media.parts import MediaPart, read_multimodal_data
from headrace.media.requests.conversation import conversation_parts, shown_messages
from headrace.media.requests.loading import Loading
from headrace.media.requests.placing import (
    PlacedItem,
    added_tokens,
    place_in_ids,
    place_in_text,
)
from headrace.media.requests.reader import MediaReader
from headrace.options.tools import ToolChoice, read_tool_choice, tool_list
from headrace.quoting import checked_text, quoted
from headrace.text.templates.chat_template import checked_variables
from headrace.text.templates.messages import parse_messages
from headrace.text.tokenizer import Tokenizer

# Ends a message that goes on, while a template is rendered: of Unicode's noncharacters, which no
# text has.
_END = "\ufdd0end\ufdd1"
# Of an array that is made a list: one may say that it is larger than memory.
_MOST_NUMBERS = 1 << 28
_PROMPT_KEYS = ("prompt", "prompt_token_ids", "messages")
_MEDIA_KEYS = ("multimodal_data", "multi_modal_data", "multi_modal_uuids")
_DICT_KEYS = frozenset(
    {
        *_MEDIA_KEYS,
        "mm_processor_kwargs",
        "prompt",
        "prompt_token_ids",
        "completion_token_ids",
        "messages",
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
    opens_answer: a chat template has begun a message of the model's, whose text is one of its own;
        otherwise their texts go on from the prompt's.
    """

    opening: str | Sequence[int] = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    opens_answer: bool = False


@dataclass(slots=True)
class Prompt:
    """A prompt the engine can run.

    token_ids: with a token for each row of an image or a clip, in its place.
    media: these, in order.
    """

    token_ids: list[int]
    shown: Any  # what RequestOutput.prompt says
    bad_words: Sequence[str] = ()
    request_id: str | None = None
    parts: PromptParts = field(default_factory=PromptParts)
    media: Sequence[PlacedItem] = ()


@dataclass(slots=True)
class ChatOptions:
    """What applies to all conversations of a call.

    template: of the caller: text, or the name of one of the model's. default_template: text, in
        case there is none.
    media: what loads images and clips; None: there can't be any, for the reason text_only.
    mm_processor_kwargs: the caller's, for all of them.
    """

    template: str | None = None
    kwargs: Mapping[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    default_template: str | None = None
    finds_opening: bool = False  # a reasoning parser wants to know where outputs begin
    max_tokens: int | None = None  # of a prompt: what can't be so few isn't tokenized
    media: MediaReader | None = None
    mm_processor_kwargs: Mapping[str, Any] | None = None
    text_only: str = "only text is read here"
    choice: ToolChoice = field(init=False)
    variables: dict[str, Any] = field(init=False)
    add_generation_prompt: bool = field(init=False)
    continues: bool = field(init=False)  # the last message is an answer that goes on

    def __post_init__(self) -> None:
        names = [tool["function"]["name"] for tool in self.tools or ()]
        self.choice = read_tool_choice(self.tool_choice, names)
        self.variables = checked_variables(self.kwargs)
        self.template = self.variables.pop("chat_template", None) or self.template
        self.continues = bool(self.variables.pop("continue_final_message", False))
        added = self.variables.pop("add_generation_prompt", None)
        if self.continues and added:
            raise ValueError("add_generation_prompt and continue_final_message exclude each other")
        self.add_generation_prompt = not self.continues if added is None else bool(added)
        if self.mm_processor_kwargs is not None:
            self.check_processor_kwargs(self.mm_processor_kwargs)

    def check_processor_kwargs(self, options: Mapping[str, Any]) -> None:
        """Of the call or of a prompt. Raises TypeError, ValueError."""
        if self.media is None:
            raise UnsupportedError(f"mm_processor_kwargs: {self.text_only}; leave it out")
        self.media.check_options(options)


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


def find_media(item: Any, chat: ChatOptions) -> Loading | None:
    """Starts to load the images and clips of an item of prompt_list or conversation_list; None if
    it has none. Raises ValueError (UnsupportedError: the model reads text only) and TypeError."""
    parts: list[MediaPart] = []
    options = chat.mm_processor_kwargs
    if _is_prompt(item):
        parts = _media_of_dict(item)
        own = item.get("mm_processor_kwargs")
        if own is not None:
            chat.check_processor_kwargs(own)
            options = own
    elif not isinstance(item, (str, Mapping)):
        parts = conversation_parts(item)
    if chat.media is None:
        if parts:
            raise UnsupportedError(f"{parts[0].modality} in the prompt: {chat.text_only}")
        return None
    return chat.media.begin(parts, options) if parts else None


def _media_of_dict(item: Mapping[str, Any]) -> list[MediaPart]:
    given = [name for name in _MEDIA_KEYS[:2] if _has_items(item.get(name))]
    if len(given) > 1:
        raise ValueError("multimodal_data and multi_modal_data are the same: give one")
    uuids = item.get("multi_modal_uuids")
    name = given[0] if given else _MEDIA_KEYS[0]
    parts = read_multimodal_data(item.get(name) if given else None, name, uuids)
    if not any(_present(item.get(key)) for key in ("prompt", "prompt_token_ids")):
        if parts:
            raise ValueError(f"{name} goes with 'prompt': put images and clips into the messages")
        parts = conversation_parts(item.get("messages"))
    return parts


def _has_items(data: Any) -> bool:
    return data is not None and not (
        isinstance(data, Mapping) and all(not _present(value) for value in data.values())
    )


def _loaded(item: Any, chat: ChatOptions, items: Sequence[MediaItem] | None) -> Sequence[MediaItem]:
    if items is not None:
        return items
    loading = find_media(item, chat)
    return () if loading is None else loading.items()


def read_prompt(
    item: Any,
    tokenizer: Tokenizer | None,
    chat: ChatOptions,
    items: Sequence[MediaItem] | None = None,
) -> Prompt:
    """Raises ValueError or TypeError for a bad prompt. Never changes `item`.

    items: what find_media has loaded; None: it is loaded here.
    """
    items = _loaded(item, chat, items)
    if isinstance(item, str):
        ids, placed = _encode(tokenizer, item, chat)
        return Prompt(ids, item, parts=PromptParts(item), media=placed)
    if isinstance(item, Mapping):
        return _read_dict(item, tokenizer, chat, items)
    ids = _ids(item, "prompt_token_ids")
    return Prompt(ids, item, parts=PromptParts(ids))


def _read_dict(
    item: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    chat: ChatOptions,
    items: Sequence[MediaItem],
) -> Prompt:
    unknown = sorted(str(key) for key in item if key not in _DICT_KEYS)
    if unknown:
        warnings.warn(f"prompt: unknown keys {', '.join(unknown)} have no effect", stacklevel=2)
    parts: PromptParts | None = None
    add_special = bool(item.get("add_special_tokens", False))
    shown: Any = item
    placed: Sequence[PlacedItem] = ()
    if _present(item.get("prompt_token_ids")):
        ids, placed = _place(item["prompt_token_ids"], "prompt_token_ids", tokenizer, chat, items)
    elif isinstance(item.get("prompt"), str):
        ids, placed = _encode(tokenizer, item["prompt"], chat, items, add_special)
    elif _present(item.get("prompt")):
        ids, placed = _place(item["prompt"], "prompt", tokenizer, chat, items)
    elif item.get("messages"):
        own = ChatOptions(
            item.get("chat_template") or chat.template,
            item.get("chat_template_kwargs"),
            tool_list(item.get("tools")),
            item.get("tool_choice"),
            default_template=chat.default_template,
            finds_opening=chat.finds_opening,
            max_tokens=chat.max_tokens,
            media=chat.media,
            text_only=chat.text_only,
        )
        if "add_generation_prompt" in item:
            own.add_generation_prompt = bool(item["add_generation_prompt"])
        conversation = read_conversation(item["messages"], tokenizer, own, items)
        ids, parts, placed = conversation.token_ids, conversation.parts, conversation.media
    else:
        raise ValueError("Request must contain 'prompt_token_ids', 'prompt', or 'messages'")
    if _present(item.get("completion_token_ids")):
        ids = ids + _ids(item["completion_token_ids"], "completion_token_ids")
        parts = None if parts is None else replace(parts, opening=ids, opens_answer=False)
    bad_words = item.get("bad_words") or ()
    if isinstance(bad_words, str) or not all(isinstance(word, str) for word in bad_words):
        raise TypeError(f"bad_words must be a list of strings, got {quoted(bad_words)}")
    request_id = item.get("request_id")
    if request_id is not None:
        request_id = checked_text(str(request_id), "request_id")
    if placed:  # not the pictures themselves, which would live as long as the output
        text = item.get("prompt")
        named = {key: value for key, value in item.items() if key not in _MEDIA_KEYS}
        shown = text if isinstance(text, str) else named
    return Prompt(ids, shown, bad_words, request_id, parts or PromptParts(ids), placed)


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


def read_conversation(
    messages: Any,
    tokenizer: Tokenizer | None,
    chat: ChatOptions,
    items: Sequence[MediaItem] | None = None,
) -> Prompt:
    """Raises ValueError for a bad conversation or template. items: as in read_prompt."""
    items = _loaded(messages, chat, items)
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    elif _is_prompt(messages) or _is_id(next(iter(_as_list(messages) or ()), None)):
        return read_prompt(messages, tokenizer, chat, items)
    parsed = parse_messages(messages, media=chat.media is not None)
    if tokenizer is None:
        raise ValueError("chat needs a tokenizer, and the model folder has none")
    template = _checked_template(tokenizer, chat.template) or chat.default_template
    tools = None if chat.choice.kind == "none" else chat.tools

    def render(shown: list[dict[str, Any]], **more: Any) -> str:
        text: str = tokenizer.apply_chat_template(
            shown, chat_template=template, tokenize=False, **more, **chat.variables
        )
        return text

    if chat.media is not None:
        form = chat.media.form(repr((template, bool(tools))), partial(render, tools=tools))
        parsed = shown_messages(parsed, form, chat.media.settings.family)
    if chat.continues:
        text = _rendered_so_far(parsed, partial(render, tools=tools))
    else:
        text = render(parsed, tools=tools, add_generation_prompt=chat.add_generation_prompt)
    if tools or chat.kwargs:
        _check_read(tokenizer.template_variables(template, bool(tools)), tools, chat)
    # Without tools there are no calls to look for.
    choice = chat.choice if tools else ToolChoice("none")
    opening = _opening(tokenizer, template, chat, text)
    parts = PromptParts(opening, tools or (), choice, chat.add_generation_prompt)
    ids, placed = _encode(tokenizer, text, chat, items)
    return Prompt(ids, text, parts=parts, media=placed)


def _rendered_so_far(messages: list[dict[str, Any]], render: Callable[..., str]) -> str:
    """The conversation up to the end of its last message's content. Raises ValueError."""
    *earlier, last = messages
    content = last.get("content")
    if last.get("role") != "assistant" or not content:
        raise ValueError(
            "continue_final_message: the last message must be the assistant's, with content"
        )
    if isinstance(content, str):
        marked: Any = content + _END
    elif content[-1].get("type") == "text":
        marked = [*content[:-1], {**content[-1], "text": content[-1]["text"] + _END}]
    else:
        raise ValueError("continue_final_message: the last message must end with text")
    text = render([*earlier, {**last, "content": marked}], add_generation_prompt=False)
    if _END not in text:
        raise ValueError(
            "continue_final_message: the chat template doesn't show the last message as it is"
        )
    return text[: text.rindex(_END)]


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


def _encode(
    tokenizer: Tokenizer | None,
    text: str,
    chat: ChatOptions,
    items: Sequence[MediaItem] = (),
    add_special_tokens: bool = False,
) -> tuple[list[int], Sequence[PlacedItem]]:
    """The ids of a text, with the items at the marks that it has for them."""
    if tokenizer is None:
        raise ValueError(
            "the model folder has no tokenizer: name one by tokenizer, or pass token ids, not text"
        )
    encode = partial(tokenizer.encode, max_tokens=chat.max_tokens)
    if chat.media is None or not (items or chat.media.has_mark(text)):
        return encode(text, add_special_tokens), ()
    around = added_tokens(tokenizer) if add_special_tokens else ([], [])
    return place_in_text(text, items, chat.media.settings, tokenizer, encode, around)


def _place(
    value: Any,
    name: str,
    tokenizer: Tokenizer | None,
    chat: ChatOptions,
    items: Sequence[MediaItem],
) -> tuple[list[int], Sequence[PlacedItem]]:
    ids = _ids(value, name)
    if not items or chat.media is None:
        return ids, ()
    if tokenizer is None:
        raise ValueError("images and clips need the model's tokenizer, and its folder has none")
    return place_in_ids(ids, items, chat.media.settings, tokenizer)


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
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and math.prod(shape) > _MOST_NUMBERS:
        raise ValueError(f"an array of {math.prod(shape)} numbers is no prompt")
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
