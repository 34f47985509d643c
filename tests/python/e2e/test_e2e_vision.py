"""LLM.chat with pictures on tiny models with towers gives the tokens that transformers gives."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from model_folders import write_json
from vision_folders import ERNIE, GEMMA, QWEN, SMOLVLM

sys.path.insert(0, str(ROOT / "tests/golden"))

from vision_conversations import (
    CONVERSATIONS,
    FPS,
    is_clip,
    is_tiled,
    pixels,
    rendered,
    tokenizer,
    words_of,
)

from headrace import LLM, AsyncLLM, SamplingParams

GOLDEN = json.loads((ROOT / "tests/golden/vision/chat.json").read_text(encoding="utf-8"))
GREEDY = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
LIMITS = {"image": 8, "video": 2}
# The same models as the makers store them.
TWINS = {"ernie4_5_vl": "ernie4_5_vl_moe", "ernie4_5_vl_paddle": "ernie4_5_vl_moe"}
TEMPLATES = {"smolvlm": SMOLVLM, "gemma3": GEMMA, "ernie4_5_vl_moe": ERNIE} | dict.fromkeys(
    TWINS, ERNIE
)
UNMARKED = {name: {"draw_on_frames": False} for name in ("ernie4_5_vl_moe", *TWINS)}
OPTIONS: dict[str, Any] = {"dtype": "float32", "num_threads": 1, "limit_mm_per_prompt": LIMITS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name in made:
            return made[name]
        own = made[name] = tmp_path_factory.mktemp(name)
        for file in ("config.json", "model.safetensors"):
            (own / file).symlink_to(ROOT / "tests/golden/vision" / name / file)
        sizes: dict[str, Any] = {"patch_size": 4, "merge_size": 2}
        sizes |= {"min_pixels": 64, "max_pixels": 1 << 20}
        if is_tiled(name):
            sizes = {"size": {"longest_edge": 32}, "do_image_splitting": True}
        if name == "gemma3":
            sizes = {"size": {"height": 32, "width": 32}}
        write_json(own / "preprocessor_config.json", sizes)
        write_json(own / "video_preprocessor_config.json", {**sizes, **UNMARKED.get(name, {})})
        tokenizer(words_of(name)).save(str(own / "tokenizer.json"))
        write_json(own / "tokenizer_config.json", {"chat_template": TEMPLATES.get(name, QWEN)})
        return own

    return folder


@pytest.fixture
def load(folders: Callable[[str], Path]) -> Iterator[Callable[..., LLM]]:
    made: list[LLM] = []

    def make(name: str, **how: Any) -> LLM:
        made.append(LLM(str(folders(name)), **{**OPTIONS, **how}))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def conversation(pieces: list[Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append({"type": "text", "text": piece})
        elif is_clip(piece):
            parts.append({"type": "video", "video": pixels(piece), "fps": FPS})
        else:
            parts.append({"type": "image", "image": pixels(piece)})
    return [{"role": "user", "content": parts}]


def answers(outputs: Any) -> list[list[int]]:
    assert [output.error_msg for output in outputs] == [None] * len(outputs)
    return [list(output.outputs.token_ids) for output in outputs]


@pytest.mark.parametrize("folder", [*CONVERSATIONS, *TWINS])
def test_answers_are_transformers(load: Callable[..., LLM], folder: str) -> None:
    llm = load(folder)
    name = TWINS.get(folder, folder)
    asked = CONVERSATIONS[name]
    messages = [conversation(pieces) for pieces in asked]
    outputs = llm.chat(messages, GREEDY, use_tqdm=False)
    expected = [entry["tokens"] for entry in GOLDEN[name]]
    assert answers(outputs) == expected
    texts = [rendered(pieces, words_of(name)) for pieces in asked]
    assert [output.prompt for output in outputs] == texts
    assert [output.prompt_token_ids for output in outputs] == [e["prompt"] for e in GOLDEN[name]]
    # One by one, from the caches of the processor, the encoder and the prefixes.
    again = [llm.chat(one, GREEDY, use_tqdm=False)[0] for one in messages]
    assert answers(again) == expected
    llm.clear_prefix_cache()
    assert answers(llm.chat(messages[::-1], GREEDY, use_tqdm=False)) == expected[::-1]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_small_steps_change_nothing(load: Callable[..., LLM], name: str) -> None:
    rows = 19 if name == "gemma3" else 16  # a picture's, and three others'
    steps = {"max_num_seqs": 4, "max_num_batched_tokens": rows, "max_encoder_tokens": 8}
    llm = load(name, **steps, block_size=16, max_encoder_cache=256)
    messages = [conversation(pieces) for pieces in CONVERSATIONS[name]]
    outputs = llm.chat(messages, GREEDY, use_tqdm=False)
    assert answers(outputs) == [entry["tokens"] for entry in GOLDEN[name]]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_second_question_runs_no_tower(load: Callable[..., LLM], name: str) -> None:
    """Every block that both prompts begin with is found, and no row is encoded again. A state is
    found where one was saved."""
    block = 16
    saves = {"snapshot_interval": block} if name == "qwen3_5" else {}
    llm = load(name, block_size=block, **saves)
    image = next(pieces for pieces in CONVERSATIONS[name] if not isinstance(pieces[0], str))[0]
    asked = [conversation([image, text]) for text in ("What is it?", "What is what?")]
    first, once = llm.chat(asked[0], GREEDY, use_tqdm=False)[0], llm.stats()
    assert once.encoded_tokens > 0
    second, twice = llm.chat(asked[1], GREEDY, use_tqdm=False)[0], llm.stats()
    assert twice.encoded_tokens == once.encoded_tokens
    prompts = first.prompt_token_ids, second.prompt_token_ids
    common = next(i for i, (a, b) in enumerate(zip(*prompts, strict=False)) if a != b)
    assert common >= block
    assert second.num_cached_tokens == common // block * block
    assert twice.prefix_hit_tokens - once.prefix_hit_tokens == second.num_cached_tokens
    # With nothing kept, the same answer.
    assert answers(load(name).chat(asked[1], GREEDY, use_tqdm=False)) == answers([second])


def test_generate_and_coroutines_answer_the_same(
    load: Callable[..., LLM], folders: Callable[[str], Path]
) -> None:
    name, number = "qwen2_vl", 2
    pieces, expected = CONVERSATIONS[name][number], GOLDEN[name][number]["tokens"]
    images = [pixels(piece) for piece in pieces if not isinstance(piece, str)]
    prompt = {"prompt": rendered(pieces), "multi_modal_data": {"image": images}}
    assert answers(load(name).generate(prompt, GREEDY, use_tqdm=False)) == [expected]

    async def run() -> Any:
        async with AsyncLLM(str(folders(name)), **OPTIONS) as llm:
            return await llm.chat(conversation(pieces), GREEDY).result()

    assert answers([asyncio.run(run())]) == [expected]


def test_a_bad_item_costs_its_neighbours_nothing(load: Callable[..., LLM]) -> None:
    name = "qwen2_vl"
    good = conversation(CONVERSATIONS[name][1])
    bad = [{"role": "user", "content": [{"type": "image", "image": b"x"}]}]
    outputs = load(name).chat([good, bad, good], GREEDY, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 400, 200]
    expected = GOLDEN[name][1]["tokens"]
    assert answers([outputs[0], outputs[2]]) == [expected, expected]


def test_an_item_that_the_encoder_cache_cannot_hold(load: Callable[..., LLM]) -> None:
    llm = load("qwen2_vl", max_encoder_cache=1)
    (output,) = llm.chat(conversation(CONVERSATIONS["qwen2_vl"][1]), GREEDY, use_tqdm=False)
    assert output.error_code == 400
    assert "media[0]: 15 rows of it take" in (output.error_msg or "")
    assert "more than the bytes of max_encoder_cache, 256" in (output.error_msg or "")
