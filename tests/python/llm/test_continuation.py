"""The text of a completion goes on from the prompt's; a chat's answer is a text of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders
import pytest

from headrace import LLM, RequestOutput, SamplingParams

Make = Callable[..., LLM]


@pytest.fixture(params=["tokenizer.json", "tokenizer.model"])
def spaced(request: Any, make_llm: Make, tmp_path: Path) -> LLM:
    """A model whose tokenizer puts a space before the first word."""
    if request.param == "tokenizer.model":
        return make_llm(
            model_folders.sentencepiece_folder(
                tmp_path,
                {"chat_template": model_folders.TEMPLATE},
                remove_extra_whitespaces=False,
            )
        )
    model_folders.byte_level_folder(tmp_path)
    model_folders.byte_fallback().save(str(tmp_path / "tokenizer.json"))
    return make_llm(tmp_path)


def says(fake: Any, llm: LLM, text: str) -> None:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    ids = [*tokenizer.encode(text), 2]
    fake.script = lambda prompt, output, seed: ids[min(len(output), len(ids) - 1)]


def text(outputs: list[RequestOutput]) -> str:
    (output,) = outputs
    assert output.error_code == 200, output.error_msg
    return output.outputs.text


def test_a_completion_keeps_its_first_spaces(fake_engine: Any, spaced: LLM) -> None:
    says(fake_engine, spaced, "Paris is")
    for prompt in ("The capital is", ["The capital is"], spaced.get_tokenizer().encode("a\n")):
        assert text(spaced.generate(prompt, use_tqdm=False)) == " Paris is"
    says(fake_engine, spaced, "   return")
    assert text(spaced.generate("def f():\n", use_tqdm=False)) == "    return"
    streamed = spaced.generate("def f():\n", stream=True, use_tqdm=False)
    updates = [update for updates in streamed for update in updates if update is not None]
    assert "".join(update.outputs.text for update in updates) == "    return"


def test_stop_strings_see_the_first_space(fake_engine: Any, spaced: LLM) -> None:
    says(fake_engine, spaced, "Paris is")
    params = SamplingParams(stop=[" Paris"])
    (output,) = spaced.generate("The capital is", params, use_tqdm=False)
    assert (output.outputs.text, output.outputs.stop_reason) == ("", " Paris")
    params = SamplingParams(stop=["is"])
    (output,) = spaced.generate("The capital is", params, use_tqdm=False)
    assert output.outputs.text == " Par"
    shown = map(spaced.get_tokenizer().token_text, output.outputs.token_ids)
    assert " Par".startswith("".join(shown))


def test_a_chat_begins_anew(fake_engine: Any, spaced: LLM) -> None:
    says(fake_engine, spaced, "Paris is")
    hello = [{"role": "user", "content": "Hello"}]
    assert text(spaced.chat(hello, use_tqdm=False)) == "Paris is"
    assert text(spaced.generate({"messages": hello}, use_tqdm=False)) == "Paris is"


def test_an_answer_begun_by_the_caller_goes_on(fake_engine: Any, spaced: LLM) -> None:
    says(fake_engine, spaced, "Paris is")
    begun = {
        "messages": [{"role": "user", "content": "Hello"}],
        "completion_token_ids": spaced.get_tokenizer().encode("It is"),
    }
    assert text(spaced.generate(begun, use_tqdm=False)) == " Paris is"


def test_native_requests_go_on_unless_told_otherwise(spaced: LLM, fake_engine: Any) -> None:
    says(fake_engine, spaced, "Paris is")
    engine, name = spaced._session._engine, spaced._session._name
    for given, expected in (({}, " Paris is"), ({"continues": False}, "Paris is")):
        outputs = engine.submit(name, "The capital is", **given).results()
        assert "".join(output.text for output in outputs) == expected
