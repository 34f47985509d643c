"""The bar of a batch job, and that it costs the job nothing."""

from __future__ import annotations

import io
import re
import sys

import pytest

from headrace.batch.progress import Progress


def test_the_bar_says_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(100, shown=True)
    progress.skip(40)
    progress.finish(10, (3, 4))
    progress.finish(10)
    progress.close()
    shown = capsys.readouterr().err.split("\r")[-1]
    assert re.search(r"60%\|.*\| \[[\d:]+<[\d:]+, 2 rows, [\d.]+ rows/s, \d+ tok/s\]", shown)


def test_rows_that_were_done_before_do_not_count_for_the_time_left() -> None:
    progress = Progress(100, shown=True)
    progress.skip(90)
    assert (progress._bar.n, progress._bar.initial) == (90, 90)
    progress.close()


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(100, shown=False)
    progress.skip(40)
    progress.finish(10, (3, 4))
    progress.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("closed_before", [True, False])
def test_a_stream_that_goes_away_costs_nothing(
    closed_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    if closed_before:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(100, shown=True)
    stream.close()
    for _ in range(3):
        progress.skip(1)
        progress.finish(1)
    progress.close()
