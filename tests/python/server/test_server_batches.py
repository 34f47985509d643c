"""Files and batches over a local folder."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

openai = pytest.importorskip("openai")

from headrace.server.batches.files import FileStore  # noqa: E402
from serving import PlayedLLM, serving  # noqa: E402


def rows(count: int, model: str = "m") -> bytes:
    lines = [
        {
            "custom_id": f"row {number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": model, "messages": [{"role": "user", "content": f"{number}"}]},
        }
        for number in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def ended(api: Any, batch_id: str) -> Any:
    deadline = time.monotonic() + 120
    while True:
        batch = api.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "cancelled"):
            return batch
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(api: Any, data: bytes) -> Any:
    file = api.files.create(file=("../../a b.jsonl", data), purpose="batch")
    return api.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"a": "b"},
    )


def test_a_batch(tmp_path: Path) -> None:
    data = rows(20) + rows(1, "other").replace(b"row 0", b"bad row") + b"no json\n"
    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        batch = ended(api, start(api, data).id)
        assert (batch.status, batch.metadata) == ("completed", {"a": "b"})
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (22, 20, 2)
        lines = [json.loads(line) for line in api.files.content(batch.output_file_id).iter_lines()]
        assert {line["custom_id"] for line in lines} == {f"row {i}" for i in range(20)}
        answer = lines[0]["response"]["body"]
        assert answer["choices"][0]["message"]["content"] == "Hello there!"
        errors = api.files.content(batch.error_file_id).text.splitlines()
        assert [json.loads(line)["custom_id"] for line in errors].count("bad row") == 1
        assert len(errors) == 2
        source = api.files.retrieve(batch.input_file_id)
        assert (source.filename, source.bytes) == ("../../a b.jsonl", len(data))
        assert [one.id for one in api.batches.list()] == [batch.id]
        assert len(list(api.files.list())) == 3
        api.files.delete(batch.output_file_id)
        with pytest.raises(openai.NotFoundError):
            api.files.content(batch.output_file_id)
    assert {path.parent for path in tmp_path.rglob("*.*")} == {tmp_path}


def test_rows_may_no_more_than_requests(tmp_path: Path) -> None:
    own = {"chat_template": "mine"}
    changes: tuple[dict[str, Any], ...] = (own, {"chat_template_kwargs": own}, {"n": 3}, {})
    lines = [json.loads(line) for line in rows(len(changes)).splitlines()]
    for line, change in zip(lines, changes, strict=True):
        line["body"] |= change
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    llm = PlayedLLM()
    with serving(llm, files_dir=str(tmp_path), max_outputs=2) as url, client(url) as api:
        batch = ended(api, start(api, data).id)
        assert batch.request_counts.completed == 1
        errors = api.files.content(batch.error_file_id).text.splitlines()
    found = [json.loads(line)["response"]["body"]["error"]["code"] for line in errors]
    assert sorted(found) == ["too_many_outputs", *["unsupported_parameter"] * 2]
    assert len(llm.calls) == 1


def test_a_batch_goes_on_after_a_restart(tmp_path: Path) -> None:
    slow = PlayedLLM(["x"], seconds=0.02)
    with serving(slow, files_dir=str(tmp_path), batch_window=1) as url, client(url) as api:
        batch = start(api, rows(600))
        while api.batches.retrieve(batch.id).request_counts.completed < 3:
            time.sleep(0.02)
    first = slow.finished
    assert 3 <= first < 600
    rest = PlayedLLM(["x"])
    with serving(rest, files_dir=str(tmp_path)) as url, client(url) as api:
        batch = ended(api, batch.id)
        lines = api.files.content(batch.output_file_id).text.splitlines()
    assert sorted(json.loads(line)["custom_id"] for line in lines) == sorted(
        f"row {number}" for number in range(600)
    )
    assert first + rest.finished <= 601  # at most the one that ran has run twice


def test_cancelling(tmp_path: Path) -> None:
    llm = PlayedLLM(["x"], seconds=0.02)
    with serving(llm, files_dir=str(tmp_path), batch_window=1) as url, client(url) as api:
        running, waiting = start(api, rows(1000)), start(api, rows(5))
        while not api.batches.retrieve(running.id).request_counts.completed:
            time.sleep(0.02)
        assert api.batches.cancel(waiting.id).status == "cancelled"
        api.batches.cancel(running.id)
        assert ended(api, running.id).status == "cancelled"
        with pytest.raises(openai.ConflictError):
            api.batches.cancel(running.id)
    assert llm.finished < 1000


@pytest.mark.parametrize("file_id", ["file-0", "..%2F..%2Fetc", "file-" + "0" * 32, "batch-x"])
def test_ids_are_no_paths(tmp_path: Path, file_id: str) -> None:
    with serving(files_dir=str(tmp_path)) as url:
        for path in (f"files/{file_id}", f"files/{file_id}/content", f"batches/{file_id}"):
            assert httpx.get(f"{url}/v1/{path}").status_code == 404
        assert httpx.delete(f"{url}/v1/files/{file_id}").status_code == 404
        body = {"input_file_id": "../x", "endpoint": "/v1/completions", "completion_window": "24h"}
        assert httpx.post(f"{url}/v1/batches", json=body).status_code == 404


def test_a_full_disk_costs_one_batch_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = FileStore.write
    full = iter([True])

    def fail_once(store: FileStore, file_id: str, known: dict[str, Any]) -> dict[str, Any]:
        if known.get("status") == "in_progress" and next(full, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(store, file_id, known)

    monkeypatch.setattr(FileStore, "write", fail_once)
    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        stuck = start(api, rows(1))
        assert ended(api, start(api, rows(1)).id).status == "completed"
        assert api.batches.retrieve(stuck.id).status == "validating"
    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        assert ended(api, stuck.id).status == "completed"


def test_a_description_that_is_gone_or_broken_hides_no_other(tmp_path: Path) -> None:
    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        file = api.files.create(file=("a.jsonl", rows(1)), purpose="batch")
        (tmp_path / f"{FileStore.new_id('file')}.json").write_text("{")
        assert [one.id for one in api.files.list()] == [file.id]


@pytest.mark.parametrize("kind", ["file", "batch"])
@pytest.mark.parametrize(
    "known",
    [
        "{}",
        "[]",
        "null",
        "[" * 100_000,
        '"x"',
        "\xff",
        '{"id": "ID"}',
        '{"id": "ID", "created_at": "x", "status": "validating"}',
        '{"id": "ID", "created_at": 1, "status": "in_progress", "endpoint": "/v1/completions"}',
        '{"id": "ID", "created_at": 1, "status": "cancelling", "bytes": "many"}',
        None,
    ],
)
def test_damaged_and_foreign_files_keep_no_server_from_starting(
    tmp_path: Path, kind: str, known: str | None
) -> None:
    file_id = FileStore.new_id(kind)
    path = tmp_path / f"{file_id}.json"
    (tmp_path / f"{kind}-foreign.json").write_text("{}")
    if known is None:
        path.mkdir()
    else:
        path.write_bytes(known.replace("ID", file_id).encode("latin-1"))
    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        assert not list(api.files.list())
        assert not list(api.batches.list())
        assert ended(api, start(api, rows(1)).id).status == "completed"


@pytest.mark.parametrize("charset", ["punycode", "idna", "undefined", "utf-16", "'utf-7'"])
def test_forms_are_in_utf_8(tmp_path: Path, charset: str) -> None:
    name = "a" * 200_000  # punycode takes minutes for a million
    body = (
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\nbatch\r\n--b--\r\n'
    ).encode()
    with serving(files_dir=str(tmp_path)) as url:
        kind = f"multipart/form-data; boundary=b; charset={charset}"
        answer = httpx.post(f"{url}/v1/files", content=body, headers={"content-type": kind})
        assert answer.status_code == 415
        assert answer.json()["error"]["code"] == "unsupported_charset"
        kind = "multipart/form-data; boundary=b; Charset=UTF-8"
        answer = httpx.post(f"{url}/v1/files", content=body, headers={"content-type": kind})
        assert answer.status_code == 400  # the name, or that it is too long


def test_a_file_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    def slow() -> Any:
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        yield head
        time.sleep(1)
        yield b"x" * (100 - len(head))

    with serving(files_dir=str(tmp_path), upload_seconds=0.2) as url:
        kind = {"content-type": "multipart/form-data; boundary=b", "content-length": "100"}
        answer = httpx.post(f"{url}/v1/files", content=slow(), headers=kind)
        assert answer.status_code == 408
    assert not list(tmp_path.iterdir())


def test_a_slow_disk_holds_up_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event loop runs on the threads that read and write descriptions."""
    found = set()

    def noting(method: Any) -> Any:
        def noted(*args: Any) -> Any:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                found.add(f"{method.__name__} on the event loop")
            return method(*args)

        return noted

    for method in (FileStore.read, FileStore.write, FileStore.list, FileStore.delete):
        monkeypatch.setattr(FileStore, method.__name__, noting(method))
    llm = PlayedLLM()
    with serving(llm, files_dir=str(tmp_path)) as url, client(url) as api:
        file_id = ended(api, start(api, rows(1)).id).output_file_id
        llm.held = True
        for batch in (start(api, rows(1)), start(api, rows(1))):
            api.batches.cancel(batch.id)
        llm.held = False
        assert len(api.batches.list().data) == 3
        api.files.content(file_id)
        api.files.retrieve(file_id)
        api.files.delete(file_id)
    assert not found


def test_a_batch_that_was_cancelled_while_it_began_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileStore.write
    begins, goes_on = threading.Event(), threading.Event()

    def slow(store: FileStore, file_id: str, known: dict[str, Any]) -> dict[str, Any]:
        if known.get("status") == "in_progress" and not begins.is_set():
            begins.set()
            assert goes_on.wait(60)
        return write(store, file_id, known)

    monkeypatch.setattr(FileStore, "write", slow)
    llm = PlayedLLM()
    with (
        serving(llm, files_dir=str(tmp_path)) as url,
        client(url) as api,
        ThreadPoolExecutor() as p,
    ):
        batch = start(api, rows(1000))
        assert begins.wait(60)
        cancelling = p.submit(api.batches.cancel, batch.id)
        assert httpx.get(f"{url}/health").status_code == 200, "though the disk is slow"
        goes_on.set()
        assert cancelling.result().status == "cancelling"
        assert ended(api, batch.id).status == "cancelled"
    assert llm.finished < 1000


def test_a_full_disk_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(files_dir=str(tmp_path)) as url, client(url) as api:
        file = api.files.create(file=("a.jsonl", rows(1)), purpose="batch")
        before = sorted(tmp_path.iterdir())
        monkeypatch.setattr(os, "fsync", full)
        form = {"data": {"purpose": "batch"}, "files": {"file": b"x"}}
        batch = {
            "input_file_id": file.id,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        for answer in (
            httpx.post(f"{url}/v1/files", **form),
            httpx.post(f"{url}/v1/batches", json=batch),
        ):
            assert answer.status_code == 507
            assert "disk is full" in answer.json()["error"]["message"]
        assert sorted(tmp_path.iterdir()) == before


def test_uploads_that_are_refused(tmp_path: Path) -> None:
    with serving(files_dir=str(tmp_path), max_file_bytes=100) as url:
        for form, data, status in (
            ({"purpose": "batch"}, b"x" * 100_000, 413),
            ({"purpose": "fine-tune"}, b"x", 400),
            ({}, b"x", 400),
            ({"purpose": "batch", "other": "1"}, b"x", 400),
        ):
            answer = httpx.post(f"{url}/v1/files", data=form, files={"file": data})
            assert answer.status_code == status, answer.text
        assert httpx.post(f"{url}/v1/files", content=b"x").status_code == 415
    assert not list(tmp_path.iterdir())


def test_without_a_folder() -> None:
    with serving() as url:
        for path in ("files", "batches", "files/file-0"):
            assert httpx.get(f"{url}/v1/{path}").status_code == 501
