"""Adapters through LLM: choice per prompt, loading, eviction and errors (over the fake engine)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from headrace import LLM, LoRARequest, SamplingParams
from headrace.llm.requests.adapters import Changes

PARAMS = SamplingParams(max_tokens=5)


@pytest.fixture
def adapters(tmp_path: Path) -> list[LoRARequest]:
    made = []
    for number in (1, 2, 3):
        folder = tmp_path / f"adapter{number}"
        folder.mkdir()
        made.append(LoRARequest(f"style{number}", number, str(folder)))
    return made


@pytest.fixture
def calls(fake_engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the engine was asked to do."""
    log: list[str] = []

    def watch(name: str, describe: Callable[..., str]) -> None:
        original = getattr(fake_engine.Engine, name)

        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            log.append(describe(*args, **kwargs))
            return result

        monkeypatch.setattr(fake_engine.Engine, name, watched)

    watch("load_lora", lambda model, name, path: f"load {name.split()[0]}")
    watch("unload_lora", lambda model, name: f"unload {name.split()[0]}")
    watch(
        "submit",
        lambda model, lora_name, **kw: f"run {lora_name.split()[0]}" if lora_name else "run",
    )
    return log


def test_each_prompt_has_its_own(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], calls: list[str]
) -> None:
    llm = make_llm(enable_lora=True, max_loras=3)
    loras = [adapters[0], None, adapters[1], adapters[0]]
    outputs = llm.generate(["a", "b", "c", "d"], PARAMS, use_tqdm=False, lora_request=loras)
    assert [o.error_code for o in outputs] == [200] * 4
    assert [c for c in calls if c.startswith("run")] == [
        "run style1",
        "run",
        "run style2",
        "run style1",
    ]
    assert [c for c in calls if c.startswith("load")] == ["load style1", "load style2"]


def test_one_for_all_and_chat(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], calls: list[str]
) -> None:
    llm = make_llm(enable_lora=True)
    llm.generate(["a", "b"], PARAMS, use_tqdm=False, lora_request=adapters[0])
    llm.chat([{"role": "user", "content": "a"}], PARAMS, use_tqdm=False, lora_request=adapters[0])
    assert calls == ["load style1", "run style1", "run style1", "run style1"]


def test_more_adapters_than_places_take_turns(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], calls: list[str]
) -> None:
    llm = make_llm(enable_lora=True, max_loras=1)
    outputs = llm.generate(["a", "b", "c"] * 3, PARAMS, use_tqdm=False, lora_request=adapters * 3)
    assert [o.error_code for o in outputs] == [200] * 9
    assert [o.prompt for o in outputs] == ["a", "b", "c"] * 3
    assert sum(c.startswith("run") for c in calls) == 9
    # Those of one adapter run together: each is loaded once.
    assert [c for c in calls if not c.startswith("run")] == [
        "load style1", "unload style1", "load style2", "unload style2", "load style3",
    ]  # fmt: skip


def test_the_least_recently_used_goes_first(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], calls: list[str]
) -> None:
    llm = make_llm(enable_lora=True, max_loras=2)
    for number in (0, 1, 0, 2):
        llm.generate(["a"], PARAMS, use_tqdm=False, lora_request=adapters[number])
    assert [c for c in calls if c.startswith("unload")] == ["unload style2"]


def test_streams_wait_for_a_place_too(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest]
) -> None:
    llm = make_llm(enable_lora=True, max_loras=1)
    finished = set()
    for news in llm.generate(["a", "b", "c"], PARAMS, stream=True, lora_request=adapters):
        finished |= {i for i, output in enumerate(news) if output is not None and output.finished}
    assert finished == {0, 1, 2}


def test_a_bad_adapter_fails_its_own_prompt(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest]
) -> None:
    llm = make_llm(enable_lora=True, max_loras=3)
    bad = LoRARequest("missing", 9, "/no/such/folder")
    outputs = llm.generate(["a", "b"], PARAMS, use_tqdm=False, lora_request=[bad, adapters[0]])
    assert outputs[0].error_code == 400
    assert "/no/such/folder" in (outputs[0].error_msg or "")
    assert outputs[1].error_code == 200


def test_what_waits_for_a_place_can_be_aborted(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], fake_engine: Any
) -> None:
    fake_engine.script = lambda prompt, output, seed: 5  # never ends by itself
    llm = make_llm(enable_lora=True, max_loras=1)
    prompts = [{"prompt": text, "request_id": text} for text in ("first", "second")]
    stream = llm.generate(
        prompts, SamplingParams(max_tokens=10_000), stream=True, lora_request=adapters[:2]
    )
    next(stream)
    assert sorted(llm.request_ids()) == ["first", "second"]
    llm.abort("second")
    llm.abort("first")
    last = {}
    for news in stream:
        last.update({i: output for i, output in enumerate(news) if output is not None})
    assert last[1].error_code == 499
    assert llm.request_ids() == []


def test_a_call_waits_for_places_that_others_use(
    make_llm: Callable[..., LLM], adapters: list[LoRARequest], fake_engine: Any
) -> None:
    """It is told of ends, whoever reads them, and of aborts: nothing looks again and again."""
    fake_engine.script = lambda prompt, output, seed: 5  # never ends by itself
    llm = make_llm(enable_lora=True, max_loras=1)
    looks: list[LoRARequest] = []
    prepare = llm._session._loras.prepare

    def counted(lora: LoRARequest) -> bool:
        looks.append(lora)
        return prepare(lora)

    llm._session._loras.prepare = counted  # type: ignore[method-assign]
    holder = llm.generate(
        {"prompt": "a", "request_id": "holder"},
        SamplingParams(max_tokens=10_000),
        stream=True,
        lora_request=adapters[0],
    )
    with ThreadPoolExecutor(2) as threads:
        calls = {
            name: threads.submit(
                llm.generate,
                {"prompt": "b", "request_id": name},
                PARAMS,
                use_tqdm=False,
                lora_request=adapters[1],
            )
            for name in ("waits", "aborted")
        }
        while not {"waits", "aborted"} <= set(llm.request_ids()):
            time.sleep(0.001)
        llm.abort("aborted")
        assert calls["aborted"].result(60)[0].error_code == 499
        time.sleep(0.1)
        assert len(looks) < 9, "it looks when something has changed"
        llm.abort("holder")  # which nobody reads
        assert calls["waits"].result(60)[0].error_code == 200
    holder.close()


def test_changes_are_not_missed(fake_engine: Any) -> None:
    changes = Changes()
    changes.wait(changes.count, 0.01)  # nothing comes
    seen = changes.count
    changes.tell()
    changes.wait(seen)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(changes.wait, changes.count) for _ in range(4)]
        while not changes._listening:
            time.sleep(0.001)
        changes.tell()
        for each in waiting:
            each.result(60)


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        ("style", TypeError),
        (["style", None], TypeError),
        ([None], ValueError),
    ],
)
def test_bad_requests(make_llm: Callable[..., LLM], requests: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="lora_request"):
        make_llm(enable_lora=True).generate(["a", "b"], lora_request=requests)


def test_it_must_be_enabled(make_llm: Callable[..., LLM], adapters: list[LoRARequest]) -> None:
    with pytest.raises(ValueError, match="enable_lora"):
        make_llm().generate(["a"], lora_request=adapters[0])


@pytest.mark.parametrize("values", [("", 1, "x"), ("x", 0, "x"), ("x", True, "x"), ("x", 1, "")])
def test_bad_fields(values: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ValueError, match="lora_"):
        LoRARequest(*values)


@pytest.mark.parametrize("options", [{"max_loras": 0}, {"max_loras": 257}, {"max_lora_rank": 0}])
def test_bad_limits(make_llm: Callable[..., LLM], options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        make_llm(enable_lora=True, **options)


@pytest.mark.parametrize("name", ["ernie4_5_all", "qwen2_patterns"])
def test_the_real_engine_answers_like_peft(name: str) -> None:
    golden = ROOT / "tests/golden"
    want = json.loads((golden / "lora/expected.json").read_text())[name]
    params = SamplingParams(temperature=0.0, max_tokens=len(want["tokens"]), ignore_eos=True)
    lora = LoRARequest(name, 1, str(golden / "lora" / name))
    options: dict[str, Any] = {"dtype": "float32", "enable_lora": True, "kv_cache_bytes": 1 << 24}
    with LLM(str(golden / want["case"]), **options) as llm:
        with_it, without = llm.generate(
            [want["prompt"]] * 2, params, use_tqdm=False, lora_request=[lora, None]
        )
        assert list(with_it.outputs.token_ids) == want["tokens"]
        assert list(without.outputs.token_ids) != want["tokens"]
