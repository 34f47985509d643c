"""Stop strings are found as if the text were read character by character."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import model_folders
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import SamplingParams
from headrace._core import StopStrings
from headrace.llm.requests.output_processor import output_text
from headrace.text.tokenizer import Tokenizer


def some_stops(alphabet: str, least: int = 1) -> st.SearchStrategy[list[str]]:
    strings = st.text(alphabet=alphabet, min_size=1, max_size=5)
    return st.lists(strings, min_size=least, max_size=4)


class Match(NamedTuple):
    """Where a stop string was found, in characters."""

    string: str
    start: int
    end: int


def found(match: Any) -> Match | None:
    return None if match is None else Match(match.string, match.start, match.end)


def naive_match(text: str, stops: list[str]) -> Match | None:
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return Match(longest, end - len(longest), end)
    return None


def naive_held(text: str, stops: list[str]) -> int:
    """The longest suffix that is the start of a stop string."""
    starts = {stop[:n] for stop in stops for n in range(1, len(stop))}
    return max((n for n in range(len(text) + 1) if text[len(text) - n :] in starts), default=0)


@settings(max_examples=500, deadline=None)
@given(text=st.text(alphabet="ab你c", max_size=20), stops=some_stops("ab你"))
def test_text_goes_out_as_soon_as_no_stop_string_can_begin_in_it(
    tokenizer: Tokenizer, text: str, stops: list[str]
) -> None:
    output = output_text(tokenizer, SamplingParams(), StopStrings(stops), frozenset(), ())
    shown = ""
    for end, char in enumerate(text, start=1):
        shown += "".join(map(output.push, tokenizer.encode(char)))
        expected = naive_match(text[:end], stops)
        assert found(output.match) == expected
        if expected is not None:
            return
        assert len(shown) == end - naive_held(text[:end], stops)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="ab", max_size=20), stops=some_stops("ab"))
def test_ignored_matches_hold_nothing_back_for_long(
    tokenizer: Tokenizer, text: str, stops: list[str]
) -> None:
    params = SamplingParams(min_tokens=30, max_tokens=50)
    output = output_text(tokenizer, params, StopStrings(stops), frozenset(), ())
    shown = ""
    for end, char in enumerate(text, start=1):
        shown += "".join(map(output.push, tokenizer.encode(char)))
        assert output.match is None
        assert len(shown) == end - naive_held(text[:end], stops)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        model_folders.byte_level_folder(Path(folder))
        return Tokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def fallback_tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        model_folders.byte_fallback().save(str(Path(folder, "tokenizer.json")))
        return Tokenizer.from_pretrained(folder)


class Increment(NamedTuple):
    ids: list[int]
    text: str


def run(
    tokenizer: Tokenizer, ids: list[int], stop: list[str], **params: object
) -> tuple[list[Increment], Match | None]:
    """The increments after each token, then after the end."""
    own = SamplingParams(stop=stop, **params)  # type: ignore[arg-type]
    text = output_text(tokenizer, own, StopStrings(stop) if stop else None, frozenset(), ())
    increments: list[Increment] = []
    released = 0
    for token_id in [*ids, None]:
        piece = text.finish() if token_id is None else text.push(token_id)
        increments.append(Increment(ids[released : text.released], piece))
        released = text.released
        if text.match is not None:
            break
    return increments, found(text.match)


def joined(increments: list[Increment]) -> tuple[list[int], str]:
    ids = [token_id for increment in increments for token_id in increment.ids]
    return ids, "".join(increment.text for increment in increments)


LINES = st.text(alphabet="the quick fox, 你好🙂é\n", max_size=40)


@settings(max_examples=400, deadline=None)
@given(
    text=LINES,
    stops=st.lists(st.text(alphabet="the 你好🙂q,", min_size=1, max_size=5), max_size=3),
    include=st.booleans(),
)
def test_output_ends_where_the_text_says(
    tokenizer: Tokenizer, text: str, stops: list[str], include: bool
) -> None:
    ids = tokenizer.encode(text)
    increments, match = run(tokenizer, ids, stops, include_stop_str_in_output=include)
    kept, shown = joined(increments)
    expected = naive_match(text, stops)
    assert match == expected
    if expected is None:
        assert (kept, shown) == (ids, text)
        return
    assert shown == text[: expected.end if include else expected.start]
    if include:  # with the token that completes it
        assert kept == ids[: len(kept)]
        assert tokenizer.decode(kept).startswith(shown)
        assert not tokenizer.decode(kept[:-1]).startswith(shown)
    else:  # the longest run of whole tokens before it
        prefixes = [n for n in range(len(ids) + 1) if shown.startswith(tokenizer.decode(ids[:n]))]
        assert kept == ids[: max(prefixes)]


@settings(max_examples=200, deadline=None)
@given(
    text=LINES,
    stops=st.lists(st.text(alphabet="the 你", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_nothing_shown_is_taken_back(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
    increments, _ = run(tokenizer, tokenizer.encode(text), stops)
    _, whole = joined(increments)
    for count in range(len(increments)):
        ids, shown = joined(increments[:count])
        assert whole.startswith(shown)
        assert shown.startswith(tokenizer.decode(ids))


@settings(max_examples=200, deadline=None)
@given(
    text=LINES,
    stops=st.lists(st.text(alphabet="the 你", min_size=1, max_size=4), min_size=1, max_size=3),
    least=st.integers(0, 12),
)
def test_min_tokens_holds_stop_strings_back(
    tokenizer: Tokenizer, text: str, stops: list[str], least: int
) -> None:
    ids = tokenizer.encode(text)
    increments, match = run(tokenizer, ids, stops, min_tokens=least)
    settled = len(tokenizer.decode(ids[: max(least - 1, 0)]).rstrip("\ufffd"))
    if match is None:
        assert joined(increments)[1] == text
    else:
        assert match.end > settled
        assert len(increments) >= min(least, len(ids))


def test_stop_inside_a_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hello, world!")
    increments, match = run(tokenizer, ids, ["lo"])
    kept, shown = joined(increments)
    assert match is not None
    assert shown == "Hel"
    assert tokenizer.decode(kept) in ("Hel", "He", "H", "")


def test_a_false_start_is_released_at_once(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("a"), *tokenizer.encode("b"), *tokenizer.encode("x")]
    increments, _ = run(tokenizer, ids, ["abc"])
    assert [increment.text for increment in increments] == ["", "", "abx", ""]
    assert [len(increment.ids) for increment in increments] == [0, 0, 3, 0]


def test_held_text_comes_at_the_end(tokenizer: Tokenizer) -> None:
    increments, match = run(tokenizer, tokenizer.encode("ab"), ["abc"])
    assert match is None
    assert joined(increments) == (tokenizer.encode("ab"), "ab")


def test_tokens_of_a_byte_run_before_the_stop_are_kept(fallback_tokenizer: Tokenizer) -> None:
    ids = fallback_tokenizer.encode("龍🙂")
    increments, match = run(fallback_tokenizer, ids, ["🙂"])
    kept, shown = joined(increments)
    assert match is not None
    assert shown == "龍"
    assert fallback_tokenizer.decode(kept) == "龍"


def test_an_ending_token_has_no_text(tokenizer: Tokenizer) -> None:
    text = output_text(tokenizer, SamplingParams(skip_special_tokens=False), None, frozenset(), ())
    pieces = [text.push(tokenizer.encode("a")[0]), text.push(2, has_text=False), text.finish()]
    assert ("".join(pieces), text.released) == ("a", 2)


def test_nothing_comes_after_a_stop_string(tokenizer: Tokenizer) -> None:
    text = output_text(tokenizer, SamplingParams(stop=["b"]), StopStrings(["b"]), frozenset(), ())
    pieces = [text.push(tokenizer.encode(char)[0]) for char in "abc"]
    assert (pieces, text.finish(), text.released) == (["a", "", ""], "", 1)


def test_without_a_tokenizer_there_is_no_text() -> None:
    text = output_text(None, SamplingParams(), None, frozenset(), ())
    assert (text.push(5), text.finish(), text.released) == ("", "", 1)
