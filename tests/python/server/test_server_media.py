"""Images and clips through AsyncLLM and the three APIs of the server, over the fake engine."""

from __future__ import annotations

import asyncio
import base64
import http.server
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_core
import httpx
import pytest
from PIL import Image
from vision_folders import vision_folder

from headrace import LLM, AsyncLLM, SamplingParams
from headrace.batch.answers import LocalAnswerer
from headrace.batch.local_engine import LocalEngine
from headrace.batch.rows import Row
from headrace.batch.tasks import read_task
from serving import events, serving

ONE = SamplingParams(max_tokens=1)


def png(color: Any = (200, 30, 30), size: tuple[int, int] = (56, 28)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return out.getvalue()


DATA = base64.b64encode(png()).decode()
URL = f"data:image/png;base64,{DATA}"


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


@pytest.fixture
def vision(fake_engine: Any, tmp_path: Path) -> Iterator[Callable[..., AsyncLLM]]:
    made: list[AsyncLLM] = []

    def make(**how: Any) -> AsyncLLM:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        made.append(AsyncLLM(str(vision_folder(folder)), **how))
        return made[-1]

    yield make
    for llm in made:
        asyncio.run(llm.close())


class Pictures(http.server.BaseHTTPRequestHandler):
    """/a.png is a picture, /away leads elsewhere, /slow takes time, /together waits for others."""

    asked: list[str]
    together: threading.Barrier

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://localhost:1/a.png")
            self.end_headers()
            return
        if self.path == "/slow":
            time.sleep(0.5)
        if self.path.startswith("/together"):
            self.together.wait(10)
        body = png()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def pictures() -> Iterator[tuple[str, list[str]]]:
    """The address of a server of pictures, and the paths that it is asked for."""
    asked: list[str] = []
    handler = type("Handler", (Pictures,), {"asked": asked, "together": threading.Barrier(3)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def post(url: str, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}{path}", json={"model": "m", **body}, timeout=30)


def chat(url: str, *content: Any, **more: Any) -> httpx.Response:
    return post(url, "/v1/chat/completions", messages=user(*content), **{"max_tokens": 1, **more})


def test_chat_completions(vision: Callable[..., AsyncLLM]) -> None:
    with serving(vision()) as url:
        whole = chat(url, image(URL), text("What?"), return_token_ids=True).json()
        streamed = chat(url, image(URL), stream=True, stream_options={"include_usage": True}).text
        wide = chat(url, image(URL), mm_processor_kwargs={"max_pixels": 784}).json()
        bad = chat(url, image(URL), mm_processor_kwargs={"max_pixles": 784})
    details = whole["usage"]["prompt_tokens_details"]
    assert (details["image_tokens"], details["video_tokens"]) == (2, 0)
    assert whole["usage"]["prompt_tokens"] == len(whole["choices"][0]["prompt_token_ids"])
    usages = [data["usage"] for _, data in events(streamed) if data != "[DONE]"]
    assert usages[-1]["prompt_tokens_details"]["image_tokens"] == 2
    assert wide["usage"]["prompt_tokens_details"]["image_tokens"] == 1
    assert bad.status_code == 400
    assert "has no 'max_pixles'" in bad.json()["error"]["message"]


def test_anthropics_messages(vision: Callable[..., AsyncLLM]) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    shown = {"type": "image", "source": source}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("see"), shown]}
    with serving(vision()) as url:
        answer = post(url, "/v1/messages", max_tokens=1, messages=user(shown, text("What?")))
        count = post(url, "/v1/messages/count_tokens", messages=user(shown, text("What?")))
        tool = post(
            url,
            "/v1/messages",
            max_tokens=1,
            messages=[
                *user(text("Look")),
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ],
        )
        refused = post(
            url,
            "/v1/messages",
            max_tokens=1,
            messages=user({"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/"}}),
        )
    assert answer.status_code == tool.status_code == 200, (answer.text, tool.text)
    assert answer.json()["usage"]["input_tokens"] == count.json()["input_tokens"]
    assert [len(media) for media in fake_core.submitted_media] == [1, 1]
    assert refused.status_code == 400
    assert "image 1 of 1: the host '10.0.0.1' is not in" in refused.json()["error"]["message"]


def test_responses(vision: Callable[..., AsyncLLM]) -> None:
    part = {"type": "input_image", "image_url": URL, "detail": "high"}
    content = [part, {"type": "input_text", "text": "What?"}]
    with serving(vision()) as url:
        answer = post(url, "/v1/responses", input=[{"role": "user", "content": content}])
        refused = post(
            url,
            "/v1/responses",
            input=[{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["input_tokens_details"]["image_tokens"] == 2
    assert "detail has no effect" in answer.headers["x-headrace-warnings"]
    assert "file_id: files are not kept" in refused.json()["error"]["message"]


def test_tokenize_counts_rows(vision: Callable[..., AsyncLLM]) -> None:
    with serving(vision()) as url:
        one = post(url, "/tokenize", messages=user(image(URL))).json()
        none = post(url, "/tokenize", messages=user(text("x"))).json()
        bad = post(url, "/tokenize", messages=user(image("data:,x")))
    assert one["count"] == len(one["tokens"]) > none["count"]
    assert bad.status_code == 400
    assert "image 1 of 1: " in bad.json()["error"]["message"]


def test_what_is_refused(vision: Callable[..., AsyncLLM], tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png())
    (tmp_path / "open").mkdir()
    outside = (tmp_path / "secret.png").as_uri()
    cases = {
        outside: "is not in allowed_local_media_path",
        (tmp_path / "open/../secret.png").as_uri(): "is not in allowed_local_media_path",
        str(tmp_path / "secret.png"): "is no data:, file: or http(s): address",
        "http://169.254.169.254/latest": "is not in allowed_media_domains",
        "ftp://example.com/a.png": "is no data:",
        "data:image/png;base64,@@@": "image 1 of 1: ",
        "data:image/png;base64," + base64.b64encode(png()[:50]).decode(): "image 1 of 1: ",
        "data:text/html,hello": "no image",
    }
    with serving(vision(allowed_local_media_path=tmp_path / "open")) as url:
        for address, words in cases.items():
            answer = chat(url, image(address))
            assert answer.status_code == 400, address
            assert words in answer.json()["error"]["message"]
            assert len(answer.text) < 2000
        for part in ({"type": "image", "image": 5}, {"type": "video", "video": ["x"]}):
            assert chat(url, part).status_code == 400
        assert chat(url, image(URL), image(URL)).status_code == 400
        assert chat(url, image(URL, uuid=5)).status_code == 400
        assert chat(url, image(URL)).status_code == 200
    assert len(fake_core.submitted_media) == 1


def test_hosts(vision: Callable[..., AsyncLLM], pictures: tuple[str, list[str]]) -> None:
    address, asked = pictures
    with serving(vision()) as url:
        closed = chat(url, image(f"{address}/a.png"))
    assert "not in allowed_media_domains" in closed.json()["error"]["message"]
    assert asked == []
    with serving(vision(allowed_media_domains=["127.0.0.1"])) as url:
        assert chat(url, image(f"{address}/a.png")).status_code == 200
        away = chat(url, image(f"{address}/away"))
    assert "'localhost' is not in allowed_media_domains" in away.json()["error"]["message"]
    assert asked == ["/a.png", "/away"]


def test_the_environment_may_allow_hosts(
    vision: Callable[..., AsyncLLM],
    pictures: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    address, _ = pictures
    (tmp_path / "a.png").write_bytes(png())
    monkeypatch.setenv("HEADRACE_ALLOWED_MEDIA_DOMAINS", "example.com, 127.0.0.1")
    monkeypatch.setenv("HEADRACE_ALLOWED_LOCAL_MEDIA_PATH", str(tmp_path))
    with serving(vision()) as url:
        assert chat(url, image(f"{address}/a.png")).status_code == 200
        assert chat(url, image((tmp_path / "a.png").as_uri())).status_code == 200
    with serving(vision(allowed_media_domains=[], allowed_local_media_path="")) as url:
        assert chat(url, image(f"{address}/a.png")).status_code == 400
        assert chat(url, image((tmp_path / "a.png").as_uri())).status_code == 400


def test_a_huge_address_is_refused_by_its_size(vision: Callable[..., AsyncLLM]) -> None:
    with serving(vision(), max_body_bytes=1 << 20) as url:
        answer = chat(url, image("data:image/png;base64," + "A" * (2 << 20)))
        assert answer.status_code == 413
        zeros = chat(url, image("data:image/png;base64," + "A" * (1 << 19)))
    assert zeros.status_code == 400
    assert len(zeros.text) < 2000


def test_uuids_reach_other_requests(vision: Callable[..., AsyncLLM]) -> None:
    with serving(vision()) as url:
        assert chat(url, image(URL, uuid="cat")).status_code == 200
        again = chat(url, {"type": "image_url", "image_url": None, "uuid": "cat"})
        other = chat(url, {"type": "image_url", "image_url": None, "uuid": "dog"})
    assert (again.status_code, other.status_code) == (200, 400)
    first, second = (media.key for (media,) in fake_core.submitted_media)
    assert first == second


def test_text_goes_on_while_a_picture_is_fetched(
    vision: Callable[..., AsyncLLM], pictures: tuple[str, list[str]]
) -> None:
    address, _ = pictures
    llm = vision(allowed_media_domains=["127.0.0.1"])

    async def both() -> tuple[float, float]:
        start = time.monotonic()

        async def timed(*content: Any) -> float:
            output = await llm.chat(user(*content), ONE).result()
            assert output.error_code == 200, output.error_msg
            return time.monotonic() - start

        await timed(text("warm"))
        start = time.monotonic()
        # More than there are threads for text.
        slow = [timed(image(f"{address}/slow")) for _ in range(3)]
        times = await asyncio.gather(*slow, timed(text("quick")))
        return min(times[:3]), times[3]

    slow, quick = asyncio.run(both())
    assert quick < 0.4 < slow


def test_items_are_loaded_side_by_side(
    vision: Callable[..., AsyncLLM], pictures: tuple[str, list[str]], make_llm: Callable[..., LLM]
) -> None:
    address, _ = pictures
    three = [image(f"{address}/together/{i}") for i in range(3)]
    options = {"allowed_media_domains": ["127.0.0.1"], "limit_mm_per_prompt": {"image": 3}}
    llm = vision(**options)
    output = asyncio.run(llm.chat(user(*three), ONE).result())
    assert output.error_msg is None
    # Those of several prompts of a call, too.
    folder = Path(llm.model_info.path)
    outputs = make_llm(folder, **options).chat([user(one) for one in three], ONE, use_tqdm=False)
    assert [output.error_msg for output in outputs] == [None] * 3


def test_closing_while_items_are_loaded(
    vision: Callable[..., AsyncLLM], pictures: tuple[str, list[str]]
) -> None:
    address, _ = pictures
    llm = vision(allowed_media_domains=["127.0.0.1"])

    async def run() -> list[Any]:
        calls = [
            asyncio.ensure_future(llm.chat(user(image(f"{address}/slow")), ONE).result())
            for _ in range(8)
        ]
        await asyncio.sleep(0.2)
        await llm.close()
        return await asyncio.gather(*calls)

    outputs = asyncio.run(run())
    assert {(o.error_code, o.error_msg) for o in outputs} == {(500, "the LLM has been closed")}
    assert fake_core.submitted_media == []


def test_a_cancelled_request_is_not_submitted(
    vision: Callable[..., AsyncLLM], pictures: tuple[str, list[str]]
) -> None:
    address, _ = pictures
    llm = vision(allowed_media_domains=["127.0.0.1"])

    async def run() -> None:
        task = asyncio.ensure_future(llm.chat(user(image(f"{address}/slow")), ONE).result())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        updates = llm.chat(user(image(f"{address}/slow")), ONE)
        waiting = asyncio.ensure_future(updates.result())
        await asyncio.sleep(0.1)
        updates.abort()
        assert (await waiting).error_code == 499

    asyncio.run(run())
    assert fake_core.submitted_media == []


def test_batch_rows(vision: Callable[..., AsyncLLM]) -> None:
    answerer = LocalAnswerer(LocalEngine(vision()), ["m"])

    async def run(address: str) -> Any:
        body = {"messages": user(image(address)), "max_tokens": 1}
        task = read_task(Row(1, 1, 1, json.loads(json.dumps(body))), {})
        return await answerer.answer(task.url, task.body)

    good, bad = asyncio.run(run(URL)), asyncio.run(run("data:,x"))
    assert good.body["usage"]["prompt_tokens_details"]["image_tokens"] == 2
    assert bad.status == 400
    assert "image 1 of 1: " in bad.body["error"]["message"]
