"""Rows of an input file: JSON lines, or columns of a CSV or Parquet file. Nothing is held but one
row, or one small piece of a Parquet file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headrace.quoting import quoted

MAX_ROW_BYTES = 16 << 20
_PIECE = 1 << 20
_PARQUET_ROWS = 64
_COLUMNS = ("custom_id", "prompt", "messages")


@dataclass(slots=True)
class Row:
    """One row of the input.

    number: from 1, of a line, or of a row of a table. units: its share of Source.units.
    size: about how many bytes it has.
    value: what it holds; None if it can't be read, and `error` says why.
    """

    number: int
    units: int
    size: int
    value: dict[str, Any] | None
    error: str = ""


@dataclass(slots=True)
class Columns:
    """The names that a table has for custom_id, prompt and messages."""

    custom_id: str = "custom_id"
    prompt: str = "prompt"
    messages: str = "messages"

    def names(self) -> dict[str, str]:
        return {getattr(self, field): field for field in _COLUMNS}


class Source:
    """The rows of a file, by the end of its name: .csv, .parquet, or anything else for JSON lines.

    units: of all rows together; bytes, or rows of a Parquet file.
    """

    def __init__(self, path: Path, columns: Columns | None = None) -> None:
        """Raises OSError, ValueError (a table has none of the columns), ImportError (pyarrow)."""
        self.path = path
        self._names = (columns or Columns()).names()
        self._kind = path.suffix.lower()
        if self._kind == ".parquet":
            self.units = self._open_parquet()
        else:
            self.units = path.stat().st_size
            if self._kind == ".csv":
                with path.open("rb") as file:
                    self._check(self._header(_CsvLines(file)))

    def __iter__(self) -> Iterator[Row]:
        if self._kind == ".parquet":
            yield from self._parquet_rows()
            return
        with self.path.open("rb") as file:
            yield from self._csv_rows(file) if self._kind == ".csv" else _json_rows(file)

    def _check(self, found: list[str]) -> None:
        if not {name for name, field in self._names.items() if field != "custom_id"} & set(found):
            wanted = " or ".join(n for n, field in self._names.items() if field != "custom_id")
            raise ValueError(
                f"{self.path} has no column {wanted}, but {quoted(found)}; name it by "
                "--prompt-column or --messages-column"
            )

    def _header(self, lines: _CsvLines) -> list[str]:
        try:
            header = next(csv.reader(lines), [])
        except csv.Error as error:
            lines.problem = f"not CSV: {error}"
            header = []
        if lines.problem:
            raise ValueError(f"{self.path}: its first line is {lines.problem}")
        return header

    def _csv_rows(self, file: IO[bytes]) -> Iterator[Row]:
        lines = _CsvLines(file)
        header = self._header(lines)
        places = [(i, self._names[name]) for i, name in enumerate(header) if name in self._names]
        reader = csv.reader(lines, strict=True)
        number = 0
        while True:
            lines.begin_row()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                cells, lines.problem = [], lines.problem or f"not CSV: {error}"
                reader = csv.reader(lines, strict=True)
            if not cells and not lines.problem:  # a blank line
                continue
            number += 1
            if not lines.problem and len(cells) != len(header):
                lines.problem = f"{len(cells)} cells, but the header has {len(header)}"
            if lines.problem:
                yield Row(number, lines.size, lines.size, None, lines.problem)
            else:
                yield _table_row(number, lines.size, lines.size, {n: cells[i] for i, n in places})

    def _open_parquet(self) -> int:
        try:
            from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ImportError(
                "Parquet files need pyarrow: pip install 'headrace[parquet]'"
            ) from None
        with parquet.ParquetFile(self.path) as file:
            self._check(file.schema_arrow.names)
            self._found = [name for name in self._names if name in file.schema_arrow.names]
            return int(file.metadata.num_rows)

    def _parquet_rows(self) -> Iterator[Row]:
        from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

        number = 0
        with parquet.ParquetFile(self.path) as file:
            for piece in file.iter_batches(batch_size=_PARQUET_ROWS, columns=self._found):
                size = piece.nbytes // max(piece.num_rows, 1)
                for values in piece.to_pylist():
                    number += 1
                    row = {self._names[name]: value for name, value in values.items()}
                    yield _table_row(number, 1, size, row)


def _table_row(number: int, units: int, size: int, values: dict[str, Any]) -> Row:
    """Empty cells are as missing; messages may be JSON text."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    messages = given.get("messages")
    if isinstance(messages, str):
        try:
            given["messages"] = json.loads(messages)
        except (ValueError, RecursionError) as error:
            return Row(number, units, size, None, f"messages are not JSON: {error}")
    if "custom_id" in given:
        given["custom_id"] = str(given["custom_id"])
    return Row(number, units, size, given)


def _json_rows(file: IO[bytes]) -> Iterator[Row]:
    for number, (line, size) in enumerate(_lines(file), 1):
        if line is None:
            yield Row(number, size, size, None, f"longer than {MAX_ROW_BYTES} bytes")
        elif line.strip():
            yield _json_row(number, line, size)


def _json_row(number: int, line: bytes, size: int) -> Row:
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        return Row(number, size, size, None, f"not JSON: {error}")
    if not isinstance(value, dict):
        return Row(number, size, size, None, f"not a JSON object: {quoted(value)}")
    return Row(number, size, size, value)


def _lines(file: IO[bytes]) -> Iterator[tuple[bytes | None, int]]:
    """Each line with its length; None for one that is too long, which is read past."""
    while line := file.readline(MAX_ROW_BYTES + 1):
        if len(line) <= MAX_ROW_BYTES or line.endswith(b"\n"):
            yield line, len(line)
            continue
        size = len(line)
        while rest := file.readline(_PIECE):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        yield None, size


class _CsvLines(Iterator[str]):
    """The lines of a CSV file as text. size: bytes that the current row took so far.

    problem: what is wrong with one of its lines; "" if nothing is.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._lines = _lines(file)
        self._encoding = "utf-8-sig"
        self.begin_row()

    def begin_row(self) -> None:
        self.size = 0
        self.problem = ""

    def __next__(self) -> str:
        line, size = next(self._lines)
        self.size += size
        if line is None:
            self.problem = f"longer than {MAX_ROW_BYTES} bytes"
            return "\n"
        encoding, self._encoding = self._encoding, "utf-8"
        try:
            return line.decode(encoding)
        except UnicodeDecodeError as error:
            self.problem = f"not UTF-8: {error}"
            return line.decode(encoding, "replace")
