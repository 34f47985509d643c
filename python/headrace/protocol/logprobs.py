"""Log-probabilities as OpenAI's objects hold them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.llm.outputs import CompletionOutput, Logprob, RequestOutput
from headrace.text.output_text import Detokenizer
from headrace.text.tokenizer import Tokenizer

_LEAST = -9999.0  # instead of minus infinity, which JSON has no number for
Position = tuple[int, Mapping[int, Logprob] | None]  # a token, and what is known of it
_COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def output_positions(output: CompletionOutput) -> list[Position]:
    """Of the tokens of an output or an increment."""
    return list(zip(output.token_ids, output.logprobs or (), strict=False))


def chat_logprobs(
    output: CompletionOutput, top: int, tokenizer: Tokenizer | None = None
) -> dict[str, Any] | None:
    """{"content": [...]} for the tokens of an output or an increment; None if it has none.

    top: how many of the likeliest tokens were asked for.
    tokenizer: knows the bytes of parts of characters.
    """
    if output.logprobs is None:
        return None
    content = []
    for token_id, position in output_positions(output):
        assert position is not None
        best = sorted(position.items(), key=lambda item: (-item[1].logprob, item[1].rank or 0))
        content.append(
            {
                **_entry(token_id, position[token_id], tokenizer),
                "top_logprobs": [_entry(*item, tokenizer) for item in best[:top]],
            }
        )
    return {"content": content, "refusal": None}


def completion_logprobs(
    positions: Iterable[Position],
    offsets: Iterable[int],
    top: int,
    tokenizer: Tokenizer | None = None,
) -> dict[str, list[Any]]:
    """The object of /v1/completions, with columns for tokens.

    offsets: where in the text each token begins. The rest as in chat_logprobs.
    """
    result: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for (token_id, position), offset in zip(positions, offsets, strict=True):
        entry = None if position is None else position.get(token_id)
        result["tokens"].append(_key(token_id, entry, tokenizer))
        result["token_logprobs"].append(None if entry is None else _finite(entry.logprob))
        result["top_logprobs"].append(
            None if position is None else _keyed(token_id, position, top, tokenizer)
        )
        result["text_offset"].append(offset)
    return result


def prompt_logprobs(output: RequestOutput, top: int) -> list[Any] | None:
    """vLLM's prompt_logprobs: for each token an object by token ids, None for the first.

    top: how many of the likeliest tokens were asked for, beside the prompt's own.
    """
    if output.prompt_logprobs is None:
        return None
    return [
        position
        and {
            str(token_id): {**entry._asdict(), "logprob": _finite(entry.logprob)}
            for token_id, entry in _best(own, position, top)
        }
        for own, position in zip(output.prompt_token_ids, output.prompt_logprobs, strict=False)
    ]


class TextOffsets:
    """Where in a text the tokens begin, told token by token.

    The parts of a character begin where it does.
    """

    def __init__(self, text: Detokenizer | None, start: int = 0) -> None:
        """text: a fresh one; None: the tokens' own texts are counted. start: of the first token."""
        self._at = start
        # Some know the text at its end alone.
        self._text = text if text is not None and text.streams else None

    def of(self, position: Position) -> int:
        """Of the next token."""
        token_id, known = position
        own = "" if known is None else _text(known[token_id])
        settled = own if self._text is None else self._text.push(token_id)
        place, self._at = self._at, self._at + len(settled)
        # What is settled with it may have been held before it.
        return self._at - len(own) if own and settled.endswith(own) else place


def _best(own: int, position: Mapping[int, Logprob], top: int) -> list[tuple[int, Logprob]]:
    """The likeliest first, and the own token, be it one of them or not."""
    ordered = sorted(position.items(), key=lambda item: -item[1].logprob)
    return [item for place, item in enumerate(ordered) if place < top or item[0] == own]


def _keyed(
    own: int, position: Mapping[int, Logprob], top: int, tokenizer: Tokenizer | None
) -> dict[str, float]:
    """Of tokens with the same text, all but the likeliest are named by their ids."""
    found: dict[str, float] = {}
    for token_id, entry in _best(own, position, top):
        key = _key(token_id, entry, tokenizer)
        found[f"token_id:{token_id}" if key in found else key] = _finite(entry.logprob)
    return found


def _key(token_id: int, entry: Logprob | None, tokenizer: Tokenizer | None) -> str:
    """A token as OpenAI's completions name it: a part of a character by its bytes."""
    if entry is None:  # the first of a prompt, whose text may lose a space at its start
        text = "" if tokenizer is None else tokenizer.decode([token_id])
    else:
        text = _text(entry)
    data = _bytes(token_id, text, tokenizer)
    if data == text.encode(errors="replace"):
        return text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _entry(token_id: int, entry: Logprob, tokenizer: Tokenizer | None) -> dict[str, Any]:
    text = _text(entry)
    return {
        "token": text,
        "logprob": _finite(entry.logprob),
        "bytes": list(_bytes(token_id, text, tokenizer)),
    }


def _bytes(token_id: int, text: str, tokenizer: Tokenizer | None) -> bytes:
    if tokenizer is None or "\ufffd" not in text:
        return text.encode(errors="replace")
    return tokenizer.bytes_of(token_id)


def _text(entry: Logprob) -> str:
    return entry.decoded_token or ""


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _LEAST
