"""Images and clips on their way through LLM: parts, multimodal_data, templates, limits, errors."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_core
import numpy as np
import pytest
from media_support import ROOT
from PIL import Image
from vision_folders import KINDS, set_template, vision_folder

from headrace import LLM, Engine, RequestOutput, SamplingParams
from headrace.errors import MediaError, UnsupportedError

assert ROOT  # what skips without the extension
ONE = SamplingParams(max_tokens=1)
MakeLLM = Callable[..., LLM]


def picture(width: int = 56, height: int = 28, color: Any = (200, 30, 30)) -> Image.Image:
    return Image.new("RGB", (width, height), color)


def png(**how: Any) -> bytes:
    out = io.BytesIO()
    picture(**how).save(out, "PNG")
    return out.getvalue()


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def part(source: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image", "image": source, **more}


def ask(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@pytest.fixture
def vision(make_llm: MakeLLM, tmp_path: Path) -> Callable[..., LLM]:
    """An LLM of a family over the fake engine."""

    def make(model_type: str = "qwen2_vl", template: str | None = None, **how: Any) -> LLM:
        folder = tmp_path / model_type
        folder.mkdir(exist_ok=True)
        vision_folder(folder, model_type)
        if template is not None:
            set_template(folder, template)
        return make_llm(folder, **how)

    return make


def submitted() -> list[list[Any]]:
    """What the engine was given, of each request."""
    return fake_core.submitted_media  # type: ignore[return-value]


def chat(llm: LLM, messages: Any, **how: Any) -> list[RequestOutput]:
    return llm.chat(messages, ONE, use_tqdm=False, **how)


def pads(llm: LLM, output: RequestOutput, token: str) -> list[int]:
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    wanted = tokenizer.convert_tokens_to_ids(token)
    return [place for place, found in enumerate(output.prompt_token_ids) if found == wanted]


def test_every_way_to_say_the_same_picture(vision: Callable[..., LLM], tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png())
    llm = vision(allowed_local_media_path=tmp_path)
    sources: list[Any] = [
        part(picture()),
        part(np.asarray(picture())),
        part(png()),
        part(file),
        part(data_url(png())),
        {"type": "image_url", "image_url": {"url": data_url(png())}},
        {"type": "image_url", "image_url": file.as_uri()},
    ]
    outputs = chat(llm, [ask(one, text("What?")) for one in sources])
    assert [output.error_msg for output in outputs] == [None] * len(sources)
    first = outputs[0]
    assert first.prompt == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert (first.num_input_image_tokens, first.num_input_video_tokens) == (2, 0)
    places = pads(llm, first, "<|image_pad|>")
    assert len(places) == 2
    assert all(output.prompt_token_ids == first.prompt_token_ids for output in outputs)
    keys = set()
    for (media,) in submitted():
        assert not media.video
        (run,) = media.runs
        assert (run.position, run.count, run.first_row) == (places[0], 2, 0)
        assert (tuple(run.grid), tuple(run.steps)) == ((1, 1, 2), (0,))
        assert (media.height, media.width) == (28, 56)
        keys.add(media.key)
    assert len(keys) == 1


@pytest.mark.parametrize("model_type", [kind for kind in KINDS if kind != "gemma3"])
def test_families_take_pictures_and_clips(vision: Callable[..., LLM], model_type: str) -> None:
    llm = vision(model_type)
    clip = np.zeros((4, 64, 64, 3), np.uint8)
    content = ask(text("a"), part(picture()), {"type": "video", "video": clip}, text("b"))
    (output,) = chat(llm, content)
    assert output.error_msg is None
    image, video = submitted()[0]
    assert (image.video, video.video) == (False, True)
    assert sum(run.count for run in image.runs) == output.num_input_image_tokens > 0
    assert sum(run.count for run in video.runs) == output.num_input_video_tokens > 0
    # Each row has its place, and the prompt shows marks, not the rows.
    settings = llm._media.settings.family  # type: ignore[union-attr]
    tokens = {settings.image_pad, settings.video_pad}
    places = sorted(place for token in tokens for place in pads(llm, output, token))
    assert places == [
        run.position + i for media in (image, video) for run in media.runs for i in range(run.count)
    ]
    assert str(output.prompt).count(settings.image_mark) == 1
    assert len(str(output.prompt)) < 200


def test_gemma_takes_squares(vision: Callable[..., LLM]) -> None:
    llm = vision("gemma3")
    content = ask(text("a"), part(picture()), text("b"))
    (output,) = chat(llm, content)
    assert output.error_msg is None
    assert output.prompt == (
        "<start_of_turn>user\na<start_of_image>b<end_of_turn>\n<start_of_turn>model\n"
    )
    ((image,),) = submitted()
    assert (image.height, image.width, image.merge_size) == (64, 64, 2)
    ((run,),) = (image.runs,)
    places = pads(llm, output, "<image_soft_token>")
    assert (places, run.count) == ([run.position + i for i in range(16)], 16)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    shown = tokenizer.decode(output.prompt_token_ids, skip_special_tokens=False)
    rows = "<image_soft_token>" * 16
    assert f"a\n\n<start_of_image>{rows}<end_of_image>\n\nb" in shown
    # As ids: with a mark, or as transformers' processor writes them.
    ids = output.prompt_token_ids
    mark = [*ids[: places[0] - 3], ids[places[0] - 1], *ids[places[-1] + 4 :]]
    for prompt in (ids, mark):
        (again,) = llm.generate(
            {"prompt_token_ids": prompt, "multi_modal_data": {"image": [picture()]}},
            ONE,
            use_tqdm=False,
        )
        assert again.prompt_token_ids == ids
    (refused,) = chat(llm, ask({"type": "video", "video": np.zeros((4, 8, 8, 3), np.uint8)}))
    assert "takes no clips" in str(refused.error_msg)


def test_a_template_of_strings_gets_the_familys_marks(vision: Callable[..., LLM]) -> None:
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    llm = vision("ernie4_5_moe_vl", template, limit_mm_per_prompt={"image": 3})
    messages = [
        {"role": "user", "content": [part(picture()), text("one"), text("two")]},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": [text("and"), part(picture(color=(0, 0, 0)))]},
    ]
    (output,) = chat(llm, messages)
    mark = "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
    assert output.prompt == (
        f"user: Picture 1:{mark}one\ntwo\nassistant: yes\nuser: andPicture 2:{mark}\n"
    )
    assert output.error_msg is None


def test_a_template_of_lists_gets_lists_for_strings(vision: Callable[..., LLM]) -> None:
    (output,) = chat(vision("smolvlm"), [{"role": "user", "content": "Hello"}])
    assert output.prompt == "<|im_start|>User: Hello<end_of_utterance>\nAssistant:"


def test_a_template_that_knows_addresses_alone(vision: Callable[..., LLM]) -> None:
    template = (
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image_url' %}"
        "<|image_pad|>{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    (output,) = chat(vision(template=template), ask(text("a"), part(picture())))
    assert output.prompt == "a<|image_pad|>"
    assert output.num_input_image_tokens == 2


def test_a_bad_item_fails_its_own_prompt(vision: Callable[..., LLM]) -> None:
    llm = vision(limit_mm_per_prompt={"image": 3})
    good = part(png())
    conversations = [
        ask(good, text("ok")),
        ask(good, part(b"no image"), good, text("bad")),
        ask(part("file:///etc/passwd")),
        ask(part("http://127.0.0.1/x.png")),
        ask(part("/etc/passwd")),
        ask(part(None, uuid="never seen")),
        ask(part(png()[:60])),
        ask({"type": "image", "image": 5}),
        ask({"type": "image_url"}),
        ask({"type": "smell"}),
        ask(good, good, good, good),
        ask(text("<|image_pad|>"), good),
        ask(text("<|image_pad|>")),
        "text alone",
    ]
    outputs = chat(llm, conversations)
    codes = [output.error_code for output in outputs]
    assert codes == [200] + [400] * 12 + [200]
    messages = [output.error_msg or "" for output in outputs]
    assert messages[1].startswith("image 2 of 3: ")
    assert "set allowed_local_media_path" in messages[2]
    assert "not in allowed_media_domains" in messages[3]
    assert "pass a pathlib.Path" in messages[4]
    assert "nothing is kept under its uuid 'never seen'" in messages[5]
    assert messages[6].startswith("image 1 of 1: ")
    assert "a int is no image" in messages[7]
    assert "Both image_url and uuid are missing" in messages[8]
    assert "Unknown content part type: smell" in messages[9]
    assert "Too many image items in prompt, got 4 but limit is 3" in messages[10]
    assert "2 places for items of the kind image, and 1 were given" in messages[11]
    assert "1 places for items of the kind image, and 0 were given" in messages[12]
    assert all(output.outputs.finish_reason == "error" for output in outputs[1:13])
    assert len(submitted()) == 2


def test_raise_on_error(vision: Callable[..., LLM]) -> None:
    from headrace import EngineError

    llm = vision(raise_on_error=True)
    with pytest.raises(EngineError, match="image 1 of 1: ") as caught:
        chat(llm, [ask(part(png())), ask(part(b"x"))])
    assert caught.value.error_code == 400


def test_uuids(vision: Callable[..., LLM]) -> None:
    llm = vision()
    named = part(png(), uuid="cat")
    outputs = chat(llm, [ask(named)])
    outputs += chat(llm, [ask(part(None, uuid="cat")), ask(part(png(color=(0, 0, 0))))])
    assert [output.error_msg for output in outputs] == [None] * 3
    first, again, other = (media for (media,) in submitted())
    assert first.key == again.key != other.key
    assert first.pixels == again.pixels
    without = vision(max_processor_cache=0)
    outputs = chat(without, [ask(named)])
    outputs += chat(without, [ask(part(None, uuid="cat"))])
    assert [output.error_code for output in outputs] == [200, 400]


PROMPT = "a<|vision_start|><|image_pad|><|vision_end|>b"


@pytest.mark.parametrize("key", ["multimodal_data", "multi_modal_data"])
def test_generate(vision: Callable[..., LLM], key: str) -> None:
    llm = vision()
    prompts: list[dict[str, Any]] = [
        {"prompt": PROMPT, key: {"image": [picture()]}},
        {"prompt": PROMPT, key: {"image": picture(), "video": []}},
        {"prompt": PROMPT, key: {"image": [png()]}, "add_special_tokens": True},
    ]
    plain, single, special = llm.generate(prompts, ONE, use_tqdm=False)
    assert plain.prompt == PROMPT
    assert plain.num_input_image_tokens == 2
    assert single.prompt_token_ids == plain.prompt_token_ids
    assert special.prompt_token_ids == [1, *plain.prompt_token_ids]
    (media,) = submitted()[2]
    assert media.runs[0].position == pads(llm, special, "<|image_pad|>")[0]
    # Ids, with one token for the picture or one for each of its rows.
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    for ids in (tokenizer.encode(PROMPT), plain.prompt_token_ids):
        (output,) = llm.generate(
            {"prompt_token_ids": ids, key: {"image": [png()]}}, ONE, use_tqdm=False
        )
        assert output.prompt_token_ids == plain.prompt_token_ids, output.error_msg
        assert output.prompt == {"prompt_token_ids": ids}


def test_generate_with_what_does_not_fit(vision: Callable[..., LLM]) -> None:
    llm = vision(limit_mm_per_prompt={"image": 2})
    image = {"image": [png()]}
    prompts: list[Any] = [
        {"prompt": "no place", "multimodal_data": image},
        {"prompt": PROMPT, "multimodal_data": {"image": [png(), png()]}},
        {"prompt": PROMPT},
        PROMPT,
        {"prompt": PROMPT, "multimodal_data": image, "multi_modal_data": image},
        {"prompt": PROMPT, "multimodal_data": [png()]},
        {"prompt": PROMPT, "multimodal_data": {"sound": [png()]}},
        {"prompt": PROMPT, "multimodal_data": {"image": ["a.png"]}},
        {"prompt_token_ids": [5, 6], "multimodal_data": image},
        {"messages": ask(text("a")), "multimodal_data": image},
        {"prompt": PROMPT, "multimodal_data": image, "mm_processor_kwargs": {"fsp": 1}},
        {"prompt": PROMPT, "multimodal_data": image, "mm_processor_kwargs": {"max_pixels": "1"}},
        {"prompt": PROMPT, "multi_modal_data": image, "multi_modal_uuids": {"image": ["a", "b"]}},
    ]
    outputs = llm.generate(prompts, ONE, use_tqdm=False)
    assert [output.error_code for output in outputs] == [400] * len(prompts)
    words = [
        "must be one <|image_pad|> for each", "1 places", "0 were given", "0 were given",
        "are the same", "must be a dict", "has no 'sound'", "is no data:", "have no place for 1",
        "put images and clips into the messages", "has no 'fsp'", "max_pixels must be an int",
        "2 names",
    ]  # fmt: skip
    for output, expected in zip(outputs, words, strict=True):
        assert expected in (output.error_msg or "")


def test_messages_and_uuids_in_dicts(vision: Callable[..., LLM]) -> None:
    llm = vision()
    image: dict[str, Any] = {"multi_modal_data": {"image": [png()]}}
    prompts: list[Any] = [
        {"messages": ask(part(png()), text("a"))},
        {"prompt": PROMPT, **image, "multi_modal_uuids": {"image": ["cat"]}},
    ]
    outputs = llm.generate(prompts, ONE, use_tqdm=False)
    outputs += llm.generate(
        {"prompt": PROMPT, "multi_modal_uuids": {"image": ["cat"]}}, ONE, use_tqdm=False
    )
    assert [output.error_msg for output in outputs] == [None] * 3
    assert [output.num_input_image_tokens for output in outputs] == [2, 2, 2]


def test_processor_kwargs(vision: Callable[..., LLM]) -> None:
    large = part(png(width=112, height=56))
    llm = vision(mm_processor_kwargs={"image_max_pixels": 28 * 28})
    assert chat(llm, ask(large))[0].num_input_image_tokens == 1
    wide = {"image_max_pixels": 10**6}
    assert chat(llm, ask(large), mm_processor_kwargs=wide)[0].num_input_image_tokens == 8
    prompt = {"prompt": PROMPT, "multimodal_data": {"image": [png(width=112, height=56)]}}
    outputs = llm.generate([prompt, {**prompt, "mm_processor_kwargs": wide}], ONE, use_tqdm=False)
    assert [output.num_input_image_tokens for output in outputs] == [1, 8]
    with pytest.raises(ValueError, match="has no 'size_of_it'"):
        chat(llm, ask(large), mm_processor_kwargs={"size_of_it": 1})
    with pytest.raises(TypeError, match="image_max_pixels must be an int"):
        vision(mm_processor_kwargs={"image_max_pixels": "many"})
    with pytest.raises(ValueError, match="has no 'size_of_it'"):
        vision(mm_processor_kwargs={"size_of_it": 1})


def test_options_of_a_clip_come_before_those_of_the_call(vision: Callable[..., LLM]) -> None:
    llm = vision()
    out = io.BytesIO()
    frames = [picture(color=(level, 0, 0)) for level in range(0, 200, 10)]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], duration=100)
    clip = {"type": "video", "video": out.getvalue()}
    counts = [
        chat(llm, ask({**clip, **own}), mm_processor_kwargs=call)[0].num_input_video_tokens
        for own, call in (
            ({}, {"video_fps": 10}),
            ({"fps": 5}, {"video_fps": 10}),
            ({"num_frames": 4}, {"video_fps": 10}),
        )
    ]
    assert counts == [20, 10, 4]


def test_prompts_beyond_the_context_fail_before_they_run(vision: Callable[..., LLM]) -> None:
    llm = vision(max_model_len=32, limit_mm_per_prompt={"image": 10})
    many = [part(png(width=112, height=56, color=(i, 0, 0))) for i in range(10)]
    (output,) = chat(llm, ask(*many))
    assert output.error_code == 400
    assert "take more than 32 tokens" in (output.error_msg or "")


def test_a_model_without_a_tower_says_so(make_llm: MakeLLM) -> None:
    llm = make_llm()
    outputs = chat(llm, [ask(part(png())), ask(text("a"))])
    assert [output.error_code for output in outputs] == [400, 200]
    assert outputs[0].error_msg == (
        "image in the prompt: this model reads text only: it has no vision tower"
    )
    prompts: list[Any] = [
        {"prompt": "a", "multimodal_data": {"image": [png()]}},
        {"prompt": "a", "multimodal_data": {"image": [], "video": None}},
    ]
    assert [o.error_code for o in llm.generate(prompts, ONE, use_tqdm=False)] == [400, 200]
    with pytest.raises(UnsupportedError, match="mm_processor_kwargs: this model reads text only"):
        chat(llm, ask(text("a")), mm_processor_kwargs={"fps": 1})
    with pytest.raises(UnsupportedError, match="enable_mm=True: this model reads text only"):
        make_llm(enable_mm=True)
    with pytest.warns(UserWarning, match="limit_mm_per_prompt has no effect"):
        make_llm(limit_mm_per_prompt={"image": 2})


def test_a_vision_model_may_be_told_to_read_text_only(vision: Callable[..., LLM]) -> None:
    llm = vision(deploy_modality="text", enable_mm=True)
    (output,) = chat(llm, ask(part(png())))
    assert "deploy_modality='text' leaves out" in (output.error_msg or "")


def test_text_starts_no_threads_and_loads_nothing(vision: Callable[..., LLM]) -> None:
    llm = vision()
    (output,) = chat(llm, ask(text("hello")))
    assert output.error_code == 200
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-media")]
    assert submitted() == [[]]


def test_a_bad_settings_file_is_an_error_of_loading(make_llm: MakeLLM, tmp_path: Path) -> None:
    folder = vision_folder(tmp_path)
    (folder / "preprocessor_config.json").write_text('{"min_pixels": "few"}')
    with pytest.raises(MediaError, match=r"preprocessor_config.json: min_pixels is 'few'"):
        make_llm(folder)


def test_a_closed_llm_loads_nothing(vision: Callable[..., LLM]) -> None:
    llm = vision()
    llm.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        chat(llm, ask(part(png())))


def test_several_outputs_share_the_picture(vision: Callable[..., LLM]) -> None:
    llm = vision()
    outputs = llm.chat(ask(part(png())), SamplingParams(max_tokens=1, n=3), use_tqdm=False)
    assert len(outputs) == 3
    (one,), (two,), (three,) = submitted()
    assert one is two is three


def test_many_pictures_wait_for_room(
    vision: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a call that are in memory at once are bounded."""
    monkeypatch.setattr("headrace.llm.requests.group._MOST_PIXELS", 20_000)  # 4 of them
    llm = vision()
    messages = [ask(part(png(color=(i, 0, 0))), text("What?")) for i in range(12)]
    stream = llm.chat([*messages, ask(text("text"))], ONE, stream=True)
    assert 0 < len(submitted()) < 12
    done = [output for step in stream for output in step if output and output.finished]
    assert [output.error_msg for output in done] == [None] * 13
    assert len(submitted()) == 13
    outputs = chat(llm, [*messages, ask(part(b"x"))])
    assert [output.error_code for output in outputs] == [200] * 12 + [400]


def test_the_engines_own_chat(fake_engine: Any, tmp_path: Path, toy_folder: Path) -> None:
    folder = vision_folder(tmp_path)
    with Engine() as engine:
        for name, path in (("m", folder), ("toy", toy_folder)):
            engine.install_model(name, str(path))
            engine.start_model(name)
        request = engine.chat("m", ask(part(png()), text("What?")))
        request.wait(10)
        (media,) = submitted()[0]
        run = media.runs[0]
        pads = request.prompt_token_ids[run.position : run.position + run.count]
        assert len(pads) == 2
        assert len(set(pads)) == 1
        smaller = {"max_pixels": 784}
        engine.chat("m", ask(part(png())), mm_processor_kwargs=smaller).wait(10)
        assert submitted()[1][0].rows == 1
        with pytest.raises(MediaError, match="image 1 of 1: file:// addresses are off"):
            engine.chat("m", ask(part((tmp_path / "a.png").as_uri())))
        with pytest.raises(UnsupportedError, match="this model reads text only"):
            engine.chat("toy", ask(part(png())))


def test_limits_of_items(vision: Callable[..., LLM]) -> None:
    llm = vision(media_limits={"max_pixels": 56 * 28 - 1, "fetch_seconds": 2.5})
    (output,) = chat(llm, ask(part(png()), text("?")))
    assert "max_pixels (1567)" in str(output.error_msg)
    (output,) = chat(llm, ask(part(png(width=28)), text("?")))
    assert output.error_msg is None
    with pytest.raises(
        ValueError, match="media_limits has no 'max_pixel'; did you mean 'max_pixels'"
    ):
        vision(media_limits={"max_pixel": 5})
    with pytest.raises(ValueError, match="has no 'max_rows'"):  # that is max_model_len's
        vision(media_limits={"max_rows": 5})
    with pytest.raises(ValueError, match="max_pixels must be above 0"):
        vision(media_limits={"max_pixels": 0})
    with pytest.raises(TypeError, match="media_limits must be a dict"):
        vision(media_limits=5)


def test_arrays_larger_than_memory_are_no_prompts(llm: LLM) -> None:
    huge: Any = np.broadcast_to(np.int64(5), (1 << 40,))
    with pytest.raises(ValueError, match="an array of 1099511627776 numbers is no prompt"):
        llm.generate(huge)
    (output,) = llm.generate([{"prompt_token_ids": huge}], ONE, use_tqdm=False)
    assert "is no prompt" in str(output.error_msg)
