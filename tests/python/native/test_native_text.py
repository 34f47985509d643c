"""What the engine itself knows of text: conversations, stop strings, a model's own defaults."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import model_folders
import native_model
import pytest

from headrace import (
    LLM,
    Engine,
    FinishReason,
    GenerationConfig,
    Output,
    RequestStatus,
    SamplingParams,
    shipped_model,
)
from headrace.text.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = GenerationConfig(temperature=0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as made:
        made.install_model("m", shipped_model())
        made.start_model("m")
        yield made


@pytest.fixture(scope="module")
def whole(engine: Engine) -> str:
    """A text that every test here cuts."""
    return text(engine.submit("m", "User: Hello\nAssistant:", GREEDY).results())


def text(outputs: Iterator[Output] | object) -> str:
    return "".join(output.text for output in outputs)  # type: ignore[attr-defined]


def test_chat_is_llms(engine: Engine) -> None:
    config = GenerationConfig(temperature=0, max_tokens=20)
    request = engine.chat("m", HELLO, config)
    with LLM(shipped_model()) as llm:
        (expected,) = llm.chat(HELLO, SamplingParams(temperature=0, max_tokens=20), use_tqdm=False)
    assert request.prompt_token_ids == expected.prompt_token_ids
    assert text(request.results()) == expected.outputs.text
    with pytest.raises(ValueError):
        engine.chat("m", [{"role": "user"}], config)


def test_text_that_takes_too_long(native_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(native_folder, tmp_path / "slow")
    model_folders.make_decoder_slow(folder)
    slow = Tokenizer.from_pretrained(folder).encode("e")[0]
    config = replace(GREEDY, logit_bias=[(slow, 100.0)])
    with Engine() as engine:
        engine.install_model("m", native_model.options(folder))
        engine.start_model("m")
        queue = engine.chat("m", HELLO, config, chat_template="{{ 'x' }}").results()
        *_, last = queue
        assert (last.finish_reason, last.error_code) == (FinishReason.ERROR, "limit_exceeded")
        assert "takes too many steps" in last.error_message
        assert queue.status() == RequestStatus.FINISHED
        assert queue.finish_reason() == FinishReason.ERROR
        assert queue.get_nowait() is None
        again = queue.get()
        assert (again.token_ids, again.error_message) == ([], last.error_message)


def test_chat_takes_a_template(engine: Engine) -> None:
    template = "{% for message in messages %}[{{ name }}]{{ message.content }}{% endfor %}"
    request = engine.chat(
        "m", HELLO, GREEDY, chat_template=template, chat_template_kwargs={"name": "x"}
    )
    assert request.prompt_token_ids == engine.submit("m", "[x]Hello", GREEDY).prompt_token_ids


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_stop_string_ends_the_text_before_it(engine: Engine, whole: str, length: int) -> None:
    for start in range(3, len(whole) - length, 5):
        stop = whole[start : start + length]
        stops = [stop, "never comes"]
        queue = engine.submit("m", "User: Hello\nAssistant:", GREEDY, stop=stops).results()
        outputs = list(queue)
        assert text(outputs) == whole[: whole.index(stop)]
        assert outputs[-1].stop_string == stop
        assert outputs[-1].finish_reason is queue.finish_reason() is FinishReason.STOP
        assert queue.status() is RequestStatus.FINISHED
        again = queue.get()
        assert (again.finished, again.token_ids, again.text) == (True, [], "")
        assert again.stop_string == stop
        assert queue.get_nowait() is None


def test_ids_end_with_the_token_that_completes_it(engine: Engine, whole: str) -> None:
    config = replace(GREEDY, logprobs=1)
    request = engine.submit("m", "User: Hello\nAssistant:", config, stop=whole[5:9])
    outputs = list(request.results())
    ids = [token for output in outputs for token in output.token_ids]
    assert sum(len(output.logprobs) for output in outputs) == len(ids)
    tokenizer = engine.tokenizer("m")
    assert tokenizer is not None
    assert whole[5:9] in tokenizer.decode(ids)
    assert whole[5:9] not in tokenizer.decode(ids[:-1])


def test_coroutines_see_the_end(engine: Engine, whole: str) -> None:
    async def run() -> None:
        config = replace(GREEDY, max_tokens=0)
        request = engine.submit("m", "User: Hello\nAssistant:", config, stop=[whole[4:6]])
        found = [output async for output in request.results()]
        assert text(found) == whole[: whole.index(whole[4:6])]
        assert await request is FinishReason.STOP

    asyncio.run(run())


def test_text_held_for_a_stop_string_that_never_comes(engine: Engine, whole: str) -> None:
    request = engine.submit("m", "User: Hello\nAssistant:", GREEDY, stop=[whole[-3:] + "never"])
    outputs = list(request.results())
    assert text(outputs) == whole
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert outputs[-1].stop_string is None


def test_min_tokens_comes_first(engine: Engine, whole: str) -> None:
    config = replace(GREEDY, min_tokens=40)
    request = engine.submit("m", "User: Hello\nAssistant:", config, stop=whole[0])
    assert len(text(request.results())) > 1


def test_stop_is_checked(engine: Engine) -> None:
    for wrong, error in (([""], ValueError), ([5], TypeError), (["x" * 70_000], ValueError)):
        with pytest.raises(error, match="stop"):
            engine.submit("m", "a", GREEDY, stop=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="detokenize=True"):
        engine.submit("m", [5, 6], GREEDY, stop=["x"])


def test_a_models_own_defaults(tmp_path: Path) -> None:
    folder = shutil.copytree(shipped_model(), tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.3, "top_k": 7}))
    with Engine() as engine:
        engine.install_model("m", folder)
        assert engine.generation_config("m") == GenerationConfig(temperature=0.3, top_k=7)
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}))
        assert engine.generation_config("m") == GenerationConfig(temperature=0.0)


def test_a_model_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(name: str) -> str:
        asked.append(name)
        return shipped_model()

    monkeypatch.setattr("headrace.native.engine.resolve_model", fetched)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shipped_model(), tmp_path / "own" / "model")
    with Engine() as engine:
        engine.install_model("hub", "org/model")
        engine.install_model("local", "own/model")
        engine.install_model("absolute", shipped_model())
    assert asked == ["org/model"]
