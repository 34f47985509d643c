"""Log-probabilities name tokens by their real bytes, and say where in the text each begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest

from headrace import LLM, CompletionOutput
from headrace.llm.outputs import Logprob
from headrace.protocol.chat import read_chat
from headrace.protocol.chat_answer import chat_answer
from headrace.protocol.completion_answer import CompletionStream, completion_answer
from headrace.protocol.completions import read_completion
from headrace.protocol.errors import ProtocolError
from headrace.protocol.logprobs import chat_logprobs, completion_logprobs

HEAD: dict[str, Any] = {"id": "x", "model": "m", "created": 5}
HELLO = [{"role": "user", "content": "Hello"}]
TEXT = "Paris 🤖 is"  # the robot is four tokens


@pytest.fixture(params=["byte level", "byte fallback", "sentencepiece"])
def llm(request: Any, make_llm: Callable[..., LLM], tmp_path: Path) -> LLM:
    if request.param == "sentencepiece":
        config = {"chat_template": model_folders.TEMPLATE}
        return make_llm(model_folders.sentencepiece_folder(tmp_path, config), enable_logprob=True)
    model_folders.byte_level_folder(tmp_path)
    if request.param == "byte fallback":
        model_folders.byte_fallback().save(str(tmp_path / "tokenizer.json"))
    return make_llm(tmp_path, enable_logprob=True)


def says(fake: Any, llm: LLM, text: str) -> list[int]:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    ids = tokenizer.encode(text)
    fake.script = lambda prompt, output, seed: [*ids, 2][min(len(output), len(ids))]
    return ids


def complete(llm: LLM, **fields: Any) -> dict[str, Any]:
    request = read_completion(fields)
    outputs = llm.generate(request.call_prompts(), request.params, use_tqdm=False)
    return completion_answer(request, outputs, **HEAD, tokenizer=llm.get_tokenizer())


def bytes_of(name: str) -> bytes:
    """Of a token as a completion names it."""
    if not name.startswith("bytes:"):
        return name.encode()
    return bytes(int(byte, 16) for byte in re.findall(r"\\x([0-9a-f]{2})", name))


def test_bytes_are_the_token_s(fake_engine: Any, llm: LLM) -> None:
    says(fake_engine, llm, TEXT)
    request = read_chat({"messages": HELLO, "logprobs": True, "top_logprobs": 2})
    outputs = llm.chat(**request.call_arguments(), use_tqdm=False)
    answer = chat_answer(request, outputs, **HEAD, tokenizer=llm.get_tokenizer())
    content = answer["choices"][0]["logprobs"]["content"][:-1]  # without the end
    assert b"".join(bytes(entry["bytes"]) for entry in content).lstrip() == TEXT.encode()
    assert all(entry["top_logprobs"][0]["bytes"] != [0xEF, 0xBF, 0xBD] for entry in content)


def test_columns_fit_the_text(fake_engine: Any, llm: LLM) -> None:
    says(fake_engine, llm, TEXT)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    for prompt in ("The 🙃 capital", tokenizer.encode("The 🙃 capital")):
        plain = complete(llm, prompt=prompt, logprobs=1)["choices"][0]
        choice = complete(llm, prompt=prompt, logprobs=1, echo=True)["choices"][0]
        columns, text = choice["logprobs"], choice["text"]
        assert text == "The 🙃 capital" + plain["text"]
        tokens, offsets = columns["tokens"][:-1], columns["text_offset"]
        assert b"".join(map(bytes_of, tokens)) == text.encode()
        assert sum(token.startswith("bytes:\\x") for token in tokens) >= 4
        for token, place in zip(tokens, offsets, strict=False):
            if not token.startswith("bytes:"):
                assert text.startswith(token, place)
            elif bytes_of(token)[0] == 0xF0:
                assert text[place] in "🙃🤖"
        assert offsets == sorted(offsets)
        assert offsets[-1] == len(text)
        assert (columns["token_logprobs"][0], columns["top_logprobs"][0]) == (None, None)
        shift = len("The 🙃 capital")
        count = len(plain["logprobs"]["tokens"])
        assert [shift + at for at in plain["logprobs"]["text_offset"]] == offsets[-count:]


def test_a_stream_s_offsets_are_the_whole_answer_s(fake_engine: Any, llm: LLM) -> None:
    says(fake_engine, llm, TEXT)
    fields = {"prompt": "The capital", "logprobs": 1, "n": 2}
    whole = complete(llm, **fields)
    request = read_completion({**fields, "stream": True})
    stream = CompletionStream(request, **HEAD, tokenizer=llm.get_tokenizer())
    found: list[list[int]] = [[], []]
    for updates in llm.generate(request.call_prompts(), request.params, stream=True):
        for update in filter(None, updates):
            for piece in stream.pieces(0, update):
                choice = piece["choices"][0]
                found[choice["index"]] += (choice["logprobs"] or {"text_offset": []})["text_offset"]
    assert found == [choice["logprobs"]["text_offset"] for choice in whole["choices"]]


def test_tokens_of_one_text_do_not_share_a_key(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    first, second, *_ = (
        token_id
        for token_id in range(len(tokenizer))
        if tokenizer.token_text(token_id) == "\ufffd"
        and tokenizer.bytes_of(token_id) != b"\xef\xbf\xbd"
    )
    position = {
        first: Logprob(-1.0, 1, "\ufffd"),
        second: Logprob(-2.0, 2, "\ufffd"),
        7: Logprob(-3.0, 3, "A"),
        8: Logprob(-4.0, 4, "A"),
        9: Logprob(-5.0, 5, "B"),
    }
    (best,) = completion_logprobs([(9, position)], [0], 4, tokenizer)["top_logprobs"]
    names = [
        "bytes:" + "".join(f"\\x{byte:02x}" for byte in tokenizer.bytes_of(token_id))
        for token_id in (first, second)
    ]
    assert list(best.items()) == [
        (names[0], -1.0),
        (names[1], -2.0),
        ("A", -3.0),
        ("token_id:8", -4.0),
        ("B", -5.0),  # the token itself comes beside the likeliest
    ]
    output = CompletionOutput(token_ids=[first], logprobs=[position])
    answer = chat_logprobs(output, 2, tokenizer)
    assert answer is not None
    given = [bytes(entry["bytes"]) for entry in answer["content"][0]["top_logprobs"]]
    assert given == [tokenizer.bytes_of(first), tokenizer.bytes_of(second)]


@pytest.mark.parametrize("tokens", [0, 1])
def test_what_lm_eval_asks_for(make_llm: Callable[..., LLM], tokens: int) -> None:
    """Ids, echo and log-probabilities of the prompt, with one token more or none."""
    llm = make_llm(enable_logprob=True)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    prompts = [tokenizer.encode(text) for text in ("Hello, world!", "one two")]
    asked = {"prompt": prompts, "echo": True, "logprobs": 1, "temperature": 0, "seed": 1234}
    answer = complete(llm, **asked, max_tokens=tokens)
    for ids, choice in zip(prompts, answer["choices"], strict=True):
        columns = choice["logprobs"]
        assert len(columns["tokens"]) == len(ids) + tokens
        assert columns["token_logprobs"][0] is None
        best = [max(position.values()) for position in columns["top_logprobs"][1:]]
        assert all(map(float.__le__, columns["token_logprobs"][1:], best))
        assert choice["finish_reason"] == "length"
        if not tokens:
            assert choice["text"] == tokenizer.decode(ids)
    assert answer["usage"]["completion_tokens"] == 2 * tokens
    bare = complete(llm, prompt="Hello", max_tokens=0)["choices"][0]
    assert (bare["text"], bare["logprobs"]) == ("", None)


def test_log_probabilities_of_prompts(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(enable_logprob=True)
    choice = complete(llm, prompt="Hello, world!", max_tokens=1, prompt_logprobs=2)["choices"][0]
    first, *others = choice["prompt_logprobs"]
    assert (first, choice["logprobs"]) == (None, None)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    ids = tokenizer.encode("Hello, world!")
    for own, position in zip(ids[1:], others, strict=True):
        assert 2 <= len(position) <= 3
        entry = position[str(own)]
        assert entry["decoded_token"] == tokenizer.token_text(own)
        assert entry["rank"] >= 1
    # Beside echo and logprobs each has as many as it asks for.
    fields = {"prompt": "Hello, world!", "echo": True, "logprobs": 1}
    both = complete(llm, **fields, prompt_logprobs=2)["choices"][0]
    assert both["prompt_logprobs"] == choice["prompt_logprobs"]
    assert both["logprobs"] == complete(llm, **fields)["choices"][0]["logprobs"]
    request = read_chat({"messages": HELLO, "prompt_logprobs": 0})
    answer = chat_answer(request, llm.chat(**request.call_arguments(), use_tqdm=False), **HEAD)
    assert [len(position or {}) for position in answer["prompt_logprobs"]][:2] == [0, 1]
    for value in (-1, 21, 1.5):
        with pytest.raises(ProtocolError, match="prompt_logprobs"):
            read_chat({"messages": HELLO, "prompt_logprobs": value})


@pytest.mark.parametrize("fields", [{"echo": True}, {"max_tokens": 0}, {"prompt_logprobs": 1}])
def test_what_does_not_go_with_streams(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="doesn't go with stream") as caught:
        read_completion({"prompt": "a", "stream": True, **fields})
    assert caught.value.param == next(iter(fields))
