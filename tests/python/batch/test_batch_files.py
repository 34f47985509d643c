"""Input rows read one at a time, and result files that survive any end."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.batch import result_files, rows
from headrace.batch.result_files import ResultFile
from headrace.batch.results import Results, result_id
from headrace.batch.rows import Columns, Row, Source
from headrace.batch.tasks import CHAT, COMPLETIONS, read_task
from headrace.protocol.errors import ProtocolError

HELLO = [{"role": "user", "content": "Hello"}]


def source(path: Path, content: bytes | str, columns: Columns | None = None) -> list[Row]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    opened = Source(path, columns)
    found = list(opened)
    if path.suffix != ".parquet" and path.suffix != ".csv":
        assert sum(row.units for row in found) <= opened.units == path.stat().st_size
    return found


def test_json_lines(tmp_path: Path) -> None:
    text = '\ufeff{"prompt": "a"}\n\n  \r\n{"prompt": "é"}\r\n{"prompt": "last"}'
    found = source(tmp_path / "in.jsonl", text)
    assert [(row.number, row.value) for row in found] == [
        (1, {"prompt": "a"}),
        (4, {"prompt": "é"}),
        (5, {"prompt": "last"}),
    ]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"a"', "not a JSON object"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"1" * 100_000 + b"}", "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"\x00" * 50, "not JSON"),
        (b'{"prompt": "' + b"a" * 5000 + b'"}', "longer than 4096 bytes"),
    ],
)
def test_a_hostile_line_costs_no_other(
    line: bytes, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = error.startswith("longer")
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 4096 if long else 1 << 20)
    monkeypatch.setattr(rows, "_PIECE", 1000)
    good = b'{"prompt": "a"}'
    found = source(tmp_path / "in.jsonl", b"\n".join([good, line, good, line]))
    assert [row.value is None for row in found] == [False, True, False, True]
    assert found[1].error.startswith(error)
    assert len(found[1].error) < 400
    assert [row.number for row in found] == [1, 2, 3, 4]


def test_csv(tmp_path: Path) -> None:
    text = 'custom_id,prompt,other\na,"two\nlines, ""quoted""",x\n\nb,é,\n'
    found = source(tmp_path / "in.csv", text)
    assert [(row.number, row.value) for row in found] == [
        (1, {"custom_id": "a", "prompt": 'two\nlines, "quoted"'}),
        (2, {"custom_id": "b", "prompt": "é"}),
    ]


def test_columns_have_the_names_that_one_says(tmp_path: Path) -> None:
    columns = Columns(custom_id="key", prompt="question")
    found = source(tmp_path / "in.csv", "key,question\n7,why\n", columns)
    assert found[0].value == {"custom_id": "7", "prompt": "why"}
    with pytest.raises(ValueError, match=r"no column question or messages, but \['prompt'\]"):
        source(tmp_path / "in.csv", "prompt\nwhy\n", columns)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"a,b,c", "3 cells, but the header has 2"),
        (b"a,\xff", "not UTF-8"),
        (b'a,"b"c', "not CSV"),
        (b"a," + b"b" * 5000, "longer than 4096 bytes"),
    ],
)
def test_a_bad_row_of_a_table_costs_no_other(
    line: bytes, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 4096)
    found = source(tmp_path / "in.csv", b"custom_id,prompt\nx,y\n" + line + b"\nx,y\n")
    assert [row.value is None for row in found] == [False, True, False]
    assert found[1].error.startswith(error)


def test_messages_of_a_table_are_json(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    cell = json.dumps(HELLO).replace('"', '""')
    found = source(path, f'messages\n"{cell}"\nnonsense\n')
    assert found[0].value == {"messages": HELLO}
    assert found[1].error.startswith("messages are not JSON")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "in.parquet"
    table = {"custom_id": [1, 2], "prompt": ["a", None], "messages": [None, HELLO], "x": [1, 2]}
    parquet.write_table(pyarrow.table(table), path)
    opened = Source(path)
    assert opened.units == 2
    assert [(row.number, row.units, row.value) for row in opened] == [
        (1, 1, {"custom_id": "1", "prompt": "a"}),
        (2, 1, {"custom_id": "2", "messages": HELLO}),
    ]


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[parquet\]'"):
        Source(tmp_path / "in.parquet")


def task(value: dict[str, Any], **defaults: Any) -> Any:
    return read_task(Row(5, 1, 1, value), defaults)


def test_the_forms_of_a_row() -> None:
    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"messages": HELLO}}
    read = task(line, seed=1)
    assert (read.custom_id, read.url, read.body) == ("a", CHAT, {"messages": HELLO, "seed": 1})
    read = task({"prompt": "x", "seed": 2}, seed=1)
    assert (read.custom_id, read.url) == ("request-5", COMPLETIONS)
    assert read.body == {"prompt": "x", "seed": 2}
    assert task({"messages": HELLO}).url == CHAT


def test_a_default_gives_way_to_the_rows_other_name_of_it() -> None:
    read = task({"messages": HELLO, "max_completion_tokens": 3}, max_tokens=5)
    assert read.body == {"messages": HELLO, "max_completion_tokens": 3}


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({}, "prompt"),
        ({"url": "/v1/embeddings", "body": {}}, "url"),
        ({"url": "/v1/files", "body": {}}, "url"),
        ({"url": 5, "body": {}}, "url"),
        ({"url": CHAT, "body": []}, "body"),
        ({"url": CHAT, "method": "GET", "body": {}}, "method"),
        ({"url": CHAT, "body": {}, "extra": 1}, "extra"),
        ({"custom_id": 5, "prompt": "a"}, "custom_id"),
        ({"custom_id": "", "prompt": "a"}, "custom_id"),
        ({"custom_id": "a" * 513, "prompt": "a"}, "custom_id"),
    ],
)
def test_a_wrong_row_is_refused_by_the_name_of_its_field(value: Any, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        task(value)
    assert caught.value.param == param


def test_embeddings_are_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="headrace embed"):
        task({"url": "/v1/embeddings", "body": {}})


def line(number: int, custom_id: str | None = None) -> dict[str, Any]:
    return {"id": result_id(number), "custom_id": custom_id, "response": {"body": "é\ud800"}}


def test_results_are_found_again(tmp_path: Path) -> None:
    out, errors = tmp_path / "out", tmp_path / "errors"
    with Results(out, errors) as results:
        results.add_answer(line(1, "a"))
        results.add_error(line(2))
        assert results.done_before == 0
    with Results(out, errors) as results:
        assert results.done_before == 2
        assert results.is_done(1, "a")
        assert results.is_done(2, None)
        assert not results.is_done(3, "a")
        with pytest.raises(ValueError, match="the input has changed"):
            results.is_done(1, "b")
        assert results.has_errors


def test_a_file_cut_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    out, errors = tmp_path / "out", tmp_path / "errors"
    with Results(out, errors) as results:
        results.add_answer(line(1, "a"))
        first = out.stat().st_size
        results.add_answer(line(2, "b"))
    whole = out.read_bytes()
    for size in range(len(whole) + 1):
        for tail in (b"", b"\0" * 9):
            out.write_bytes(whole[:size] + tail)
            complete = whole[:size].count(b"\n")
            with Results(out, errors) as results:
                assert results.done_before == complete, size
                assert out.stat().st_size == (0, first, len(whole))[complete]
                results.add_answer(line(9))
            assert out.read_bytes().splitlines()[-1].startswith(b'{"id": "batch_req_9"')


@pytest.mark.parametrize(
    "content",
    [b"precious", b"precious\n", b'{"id": "batch_req_x"}\n', b'{"id": "batch_req_1"}\n', b"{}\n",
     b'{"id": "batch_req_1", "custom_id": 5}\n', b"\n",
     b'{"id": "batch_req_1", "custom_id": "a"}\n' * 2],
)  # fmt: skip
def test_a_file_of_another_kind_is_not_touched(content: bytes, tmp_path: Path) -> None:
    out, errors = tmp_path / "out", tmp_path / "errors"
    for path, other in ((out, errors), (errors, out)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no result of this batch job"):
            Results(out, errors)
        assert path.read_bytes() == content
        assert not other.exists()
        path.unlink()
    out.write_bytes(content)
    with Results(out, errors, overwrite=True) as results:
        assert results.done_before == 0
    assert not out.exists()


def test_a_line_too_long_to_be_read_back_is_not_taken_for_a_torn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    lines = [{"id": f"batch_req_{n}", "custom_id": None, "response": "x" * 300} for n in (1, 2)]
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = output.read_bytes()
    monkeypatch.setattr(result_files, "_MOST_BYTES", 200)
    with pytest.raises(ValueError, match="line 1 has 200 bytes or more"):
        Results(output, errors)
    assert output.read_bytes() == before


def test_a_disk_that_fails_at_the_end_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, errors = tmp_path / "out", tmp_path / "errors"

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    results = Results(out, errors)
    results.add_answer(line(1, "a"))
    results.add_error(line(2))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            results.close()
    with Results(out, errors) as again:  # nobody holds a lock
        assert again.done_before == 2


def test_one_job_at_a_time(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "out")
    with pytest.raises(BlockingIOError, match="another job is writing"):
        ResultFile(tmp_path / "out")
    file.close()
    ResultFile(tmp_path / "out").close()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from headrace.batch.result_files import ResultFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
file = ResultFile(Path(sys.argv[1]))
file.append({"id": "x" * 40})
try:
    file.append({"id": "y" * 60})
except OSError:
    file.append({"id": "z"})
    file.close()
    print("refused")
"""


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    ids = [json.loads(text)["id"][0] for text in (tmp_path / "out").read_text().splitlines()]
    assert ids == ["x", "z"]


def test_results_go_to_files_alone(tmp_path: Path) -> None:
    """What can't be read back, or is taken by its reader, is refused; nobody waits for one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(OSError, match="is a pipe or a device"):
            ResultFile(path)
    with pytest.raises(IsADirectoryError):
        ResultFile(tmp_path)
    with pytest.raises(OSError, match="is a pipe or a device"):
        Results(tmp_path / "out.jsonl", pipe, overwrite=True)
