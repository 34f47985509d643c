"""What only ERNIE-4.5-VL has: experts of text and of vision, a head that the checkpoint decides."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ernie_vl_folders import Tensors, change_tensors, ernie_folder, set_config
from model_folders import write_json
from tokenizers import Tokenizer
from vision_conversations import ERNIE, Words, pixels, tokenizer

from headrace import LLM, Engine, SamplingParams, packed
from headrace.errors import MediaError

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=3)
VISION = re.compile(r"mlp\.(experts\.[4-7]\.|gate\.weight_1)")
PICTURE = pixels(("noise", 24, 40))
CLIP = pixels((4, 16, 24))


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., LLM]]:
    made: list[LLM] = []

    def make(folder: Path, **how: Any) -> LLM:
        options: dict[str, Any] = {
            "dtype": "float32",
            "num_threads": 1,
            "enable_logprob": True,
            **how,
        }
        made.append(LLM(str(folder), limit_mm_per_prompt={"image": 8, "video": 2}, **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def user(*parts: Any) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return [{"role": "user", "content": content}]


IMAGE = {"type": "image", "image": PICTURE}
VIDEO = {"type": "video", "video": CLIP, "fps": 2.0}
CONVERSATIONS = [
    user("Only words."),
    user(IMAGE, "What is it?"),
    user("Look: ", VIDEO, IMAGE, " and?"),
    user("More words, and no picture at all."),
]


def bits(output: Any) -> Any:
    """Everything that an answer's numbers say."""
    assert output.error_msg is None
    tops = [
        {token: entry.logprob for token, entry in position.items()}
        for position in output.outputs.logprobs
    ]
    return list(output.outputs.token_ids), tops


def without_vision(tensors: Tensors) -> Tensors:
    """The experts of vision and their router are nothing but zeros."""
    return {
        name: (dtype, shape, bytes(len(data)) if VISION.search(name) else data)
        for name, (dtype, shape, data) in tensors.items()
    }


def test_words_never_meet_the_experts_of_vision(load: Callable[..., LLM], tmp_path: Path) -> None:
    whole, zeroed = ernie_folder(tmp_path / "whole"), ernie_folder(tmp_path / "zeroed")
    change_tensors(zeroed, without_vision)
    # Tokens that are generated count as what they are: none of vision here.
    words = SamplingParams(
        temperature=0, max_tokens=24, ignore_eos=True, logprobs=3, bad_words_token_ids=_vision_ids()
    )
    with_pictures = load(whole).chat(CONVERSATIONS, words, use_tqdm=False)
    without = load(zeroed).chat(CONVERSATIONS, words, use_tqdm=False)
    for index, same in enumerate((True, False, False, True)):
        assert (bits(with_pictures[index]) == bits(without[index])) == same, index


def _vision_ids() -> list[int]:
    return list(range(250, 256))


@pytest.mark.parametrize(
    "weights",
    [{}, {"dtype": "bfloat16"}, {"quantization": "wint8"}, {"quantization": "wint4"}],
    ids=["float32", "bfloat16", "wint8", "wint4"],
)
def test_company_and_chunks_change_no_bit(
    load: Callable[..., LLM], tmp_path: Path, weights: dict[str, str]
) -> None:
    folder = ernie_folder(tmp_path / "model")
    alone = load(folder, **weights, enable_prefix_caching=False)
    expected = [bits(alone.chat(one, GREEDY, use_tqdm=False)[0]) for one in CONVERSATIONS]
    small = load(
        folder,
        **weights,
        max_num_seqs=4,
        max_num_batched_tokens=12,
        block_size=16,
        max_encoder_tokens=8,
    )
    for order in (CONVERSATIONS, CONVERSATIONS[::-1], CONVERSATIONS):  # then from the prefix cache
        answers = [bits(output) for output in small.chat(order, GREEDY, use_tqdm=False)]
        assert answers == (expected if order is CONVERSATIONS else expected[::-1])


def test_guessed_tokens_go_to_the_experts_of_their_kind(
    load: Callable[..., LLM], tmp_path: Path
) -> None:
    """Some of what is generated here is of vision, by its id."""
    folder = ernie_folder(tmp_path / "model")
    ids = dataclasses.replace(GREEDY, max_tokens=64)
    expected = [bits(out) for out in load(folder).chat(CONVERSATIONS, ids, use_tqdm=False)]
    assert any(token >= 250 for tokens, _ in expected for token in tokens)
    guessing = load(folder, speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    answers = [bits(out) for out in guessing.chat(CONVERSATIONS, ids, use_tqdm=False)]
    assert answers == expected
    assert guessing.stats().drafted_tokens > 0


def test_multimodal_data_answers_as_a_conversation(
    load: Callable[..., LLM], tmp_path: Path
) -> None:
    llm = load(ernie_folder(tmp_path / "model"))
    (asked,) = llm.chat(CONVERSATIONS[2], GREEDY, use_tqdm=False)
    prompt = {
        "prompt": asked.prompt,
        "multimodal_data": {"image": [PICTURE], "video": [{"video": CLIP, "fps": 2.0}]},
    }
    (answer,) = llm.generate(prompt, GREEDY, use_tqdm=False)
    assert bits(answer) == bits(asked)
    # A clip of four frames is two pairs; an image counts once.
    assert (answer.num_input_video_tokens, answer.num_input_image_tokens) == (2 * 6, 15)


def without_head(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if name != "lm_head.weight"}


@pytest.mark.parametrize("case", ["ernie4_5_vl", "ernie4_5_vl_paddle"])
def test_a_head_is_used_if_it_is_there(load: Callable[..., LLM], tmp_path: Path, case: str) -> None:
    answers: dict[tuple[bool, bool], Any] = {}
    for stored in (True, False):
        for tied in (True, False):
            folder = ernie_folder(tmp_path / f"{stored}{tied}", case)
            set_config(folder, tie_word_embeddings=tied)
            if not stored:
                change_tensors(folder, without_head)
            (output,) = load(folder).chat(CONVERSATIONS[1], GREEDY, use_tqdm=False)
            answers[stored, tied] = bits(output)
    assert answers[True, True] == answers[True, False]
    assert answers[False, True] == answers[False, False]
    assert answers[True, True] != answers[False, False]


@pytest.mark.parametrize("stored", [True, False])
def test_a_packed_file_gives_the_same_bits(
    load: Callable[..., LLM], tmp_path: Path, stored: bool
) -> None:
    folder = ernie_folder(tmp_path / "model")
    set_config(folder, tie_word_embeddings=stored)  # which says nothing
    if not stored:
        change_tensors(folder, without_head)
    expected = [bits(out) for out in load(folder).chat(CONVERSATIONS, GREEDY, use_tqdm=False)]
    packed.pack(folder, tmp_path / "packed", dtype="float32", num_threads=1)
    outputs = load(tmp_path / "packed").chat(CONVERSATIONS, GREEDY, use_tqdm=False)
    assert [bits(out) for out in outputs] == expected


def saved(folder: Path, words: Words) -> Path:
    made: Tokenizer = tokenizer(words)
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_a_tokenizer_whose_text_looks_like_images_is_refused(tmp_path: Path) -> None:
    folder = ernie_folder(tmp_path / "model")
    special = tuple(name for name in ERNIE.special if name != "</think>")
    places = {**ERNIE.places, "</think>": 251}
    saved(folder, _changed(special, places))
    expected = r"</think> is token 251, but tokens from im_patch_id \(250\) on"
    with pytest.raises(MediaError, match=expected):
        LLM(str(folder), num_threads=1)
    engine = Engine()
    engine.install_model("m", str(folder))
    engine.start_model("m")
    with pytest.raises(MediaError, match=expected):
        engine.tokenizer("m")
    engine.stop_model("m")
    places = {name: number for name, number in ERNIE.places.items() if "PLACEHOLDER" not in name}
    saved(folder, _changed((*ERNIE.special, "<|IMAGE_PLACEHOLDER|>"), places))
    with pytest.raises(MediaError, match=r"<\|IMAGE_PLACEHOLDER\|> is token 6, but those"):
        LLM(str(folder), num_threads=1)


def _changed(special: tuple[str, ...], places: dict[str, int]) -> Words:
    return Words(special, places, ERNIE.marks, ERNIE.shown, ERNIE.before, ERNIE.after)


def test_checkpoints_that_lack_something_name_it(tmp_path: Path) -> None:
    for missing in ("mlp.gate.weight_1", "experts.7.up_proj.weight", "temporal_linear.3.bias"):
        folder = ernie_folder(tmp_path / missing)
        change_tensors(
            folder, lambda tensors, end=missing: {k: v for k, v in tensors.items() if end not in k}
        )
        with pytest.raises(Exception, match=re.escape(missing)):
            LLM(str(folder), num_threads=1)
    folder = ernie_folder(tmp_path / "config")
    write_json(folder / "config.json", {**_config(folder), "moe_num_experts": [4, 2]})
    with pytest.raises(Exception, match="both groups must have as many experts"):
        LLM(str(folder), num_threads=1)


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_numbers_tell_of_both_groups(load: Callable[..., LLM], tmp_path: Path) -> None:
    info = load(ernie_folder(tmp_path / "model")).model_info
    assert info.vision
    assert info.family == "ernie4_5_moe_vl"
    assert (info.num_experts, info.num_active_experts) == (4 + 4, 2)
    assert 0 < info.num_active_parameters < info.num_parameters
    assert info.vision_weight_bytes > 0
