"""Conversations with images and clips: their items, and what a chat template is shown of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import TemplateError
from headrace.media.families import Family
from headrace.media.parts import MediaPart, read_part

Render = Callable[[list[dict[str, Any]]], str]  # a chat template's text of some messages
_PROBE = "Q7y2"


@dataclass(frozen=True, slots=True)
class ContentForm:
    """What a chat template takes as the content of a message.

    texts: strings. parts: lists; images stand in them as {"type": part_type("image")}.
    """

    texts: bool
    parts: bool
    suffix: str = ""

    def part_type(self, modality: str) -> str:
        return modality + self.suffix


def conversation_parts(messages: Any) -> list[MediaPart]:
    """The images and clips of all messages, in their order. Raises TypeError, ValueError for a bad
    one; what else is wrong with the messages is for parse_messages to say."""
    found: list[MediaPart] = []
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        return found
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
            parts = [read_part(part) for part in content if _is_media(part)]
            found += [part for part in parts if part is not None]
    return found


def _is_media(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and kind in ("image", "image_url", "video", "video_url")


def content_form(render: Render, family: Family) -> ContentForm:
    """Found by trying: templates differ, and nothing in a model's files says which it is."""
    texts = _PROBE in _rendered(render, _PROBE)
    for suffix in ("", "_url"):
        kind = "image" + suffix
        picture = {"type": kind, kind: {"url": ""}} if suffix else {"type": kind}
        shown = _rendered(render, [picture, {"type": "text", "text": _PROBE}])
        if _PROBE in shown and family.image_mark in shown:
            return ContentForm(texts, True, suffix)
    return ContentForm(texts, False)


def _rendered(render: Render, content: Any) -> str:
    try:
        return render([{"role": "user", "content": content}])
    except TemplateError:  # which is an answer too
        return ""


def shown_messages(
    parsed: Sequence[Mapping[str, Any]], form: ContentForm, family: Family
) -> list[dict[str, Any]]:
    """`parsed` (parse_messages) as the template takes it. Where that is strings alone, the family's
    text for an item stands in its place."""
    numbers: Counter[str] = Counter()
    return [
        {**message, "content": _shown(message["content"], form, family, numbers)}
        for message in parsed
    ]


def _shown(content: Any, form: ContentForm, family: Family, numbers: Counter[str]) -> Any:
    if isinstance(content, str):
        return content if form.texts or not form.parts else [{"type": "text", "text": content}]
    if form.parts:
        return [
            part if part["type"] == "text" else {"type": form.part_type(part["type"])}
            for part in content
        ]
    text, before = "", ""
    for part in content:
        kind = part["type"]
        if kind == "text":
            text += ("\n" if before == "text" else "") + part["text"]
        else:
            numbers[kind] += 1
            shown = family.image_shown if kind == "image" else family.video_shown
            text += shown.replace("{n}", str(numbers[kind]))
        before = kind
    return text
