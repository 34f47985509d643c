"""Chat templates in their process: what they give, and what they can't take or hold up."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from conftest import ROOT, SUPPORT
from hostile_templates import ATTACKS, COSTLY, random_template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace.errors import TemplateError
from headrace.limited import start
from headrace.text.templates import process as template_process
from headrace.text.templates.chat_template import render_template
from headrace.text.templates.sandbox import GenerationTag

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "<hi> & 你好"},
    {
        "role": "assistant",
        "content": "<think>\nHm\n</think>\n\nHello",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, None, 2.5, "é"]}}}],
    },
    {"role": "tool", "content": "42"},
    {"role": "user", "content": "Go on"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

# What published templates are made of: each line is a habit of at least one family.
HABITS = [
    # ChatML with tools, as Qwen
    "{%- if tools %}\n{{- '<|im_start|>system\\n' }}\n{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content + '\\n\\n' }}{%- endif %}{%- for tool in tools %}{{- '\\n' }}"
    "{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}",
    "{%- set ns = namespace(multi=true, last=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.multi and message.role == 'user' and message.content is string and not("
    "message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}"
    "{%- set ns.multi = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}",
    "{%- for m in messages if '</think>' in m.content %}"
    "{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}"
    "{%- endfor %}",
    # Dates and exceptions, as Llama 3
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}{%- endif %}{{ date_string }}",
    "{{ tools | tojson(indent=4) }}{{ {'b': 1, 'a': '<'} | tojson(sort_keys=true) }}",
    "{%- set loop_messages = messages[1:] %}{%- set system = messages[0]['content'] | trim %}"
    "{%- for m in loop_messages %}{{ '<' ~ m['role'] ~ '>' ~ m['content'] | trim }}{% endfor %}",
    # Alternation, as Mistral and Gemma
    "{%- for m in messages | selectattr('role', 'in', ['user', 'assistant']) %}"
    "{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{%- endif %}{{ m.role }}{%- endfor %}",
    "{{ bos_token }}{% set role = 'model' if messages[2].role == 'assistant' else 'user' %}"
    "{{ role }}",
    # Macros, calls, filters, tests
    "{% macro show(m, tag='x') -%}\n  <{{ tag }}>{{ m.content }}\n{%- endmacro %}"
    "{% for m in messages %}{{ show(m, tag=m.role) }}{% endfor %}",
    "{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% call wrap() %}in{% endcall %}",
    "{% generation %}{% set inner = 1 %}{{ messages[2].content }}{% endgeneration %}"
    "{{ inner is defined }}",
    "{%- for key, value in messages[2].tool_calls[0].function.arguments.items() %}"
    "{{ key }}={{ value if value is string else value | tojson }}{%- endfor %}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | length }}{{ -1 | abs }}",
    "{{ messages | groupby('role') | map('first') | list }}{{ messages | last }}"
    "{{ none }}{{ 1.0 }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index == 3 %}{% break %}{% endif %}{{ loop.last }}{% endfor %}",
    "{% filter upper %}{{ messages[0].content }}{% endfilter %}{{ 'a\\nb' | indent(2, true) }}",
    "{{ '%s-%d' % ('a', 3) }}{{ '{}:{x}'.format(1, x=2) }}{{ 'ab' * 3 }}{{ 7 // 2 }}{{ 2 ** 8 }}",
    "{{ messages[9] is defined }}{{ missing }}{{ missing | default('d') }}"
    "{{ dict(a=1) }}{{ (1, 2) }}",
    "  {%- if true %}\n line\n  {% endif %}\n{# note #}\n end\n",
    "{{ raise_exception('no') }}",
    "{{ messages.append(1) }}",
    "{{ a.b.c }}",
    "{% if %}",
]  # fmt: skip


def as_transformers_does(template: str, variables: dict[str, Any]) -> str | Exception:
    """The text or the error. Without limits: for templates that need none."""

    def tojson(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(template).render(**variables)
    except jinja2.TemplateError as error:
        return error


@pytest.mark.parametrize("template", HABITS)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_gives_what_transformers_gives(template: str, tools: Any) -> None:
    variables = {"messages": MESSAGES, "tools": tools, "bos_token": "<s>"}
    expected = as_transformers_does(template, variables)
    try:
        rendered: object = render_template(template, variables)
    except TemplateError as error:
        rendered = error
    if isinstance(expected, Exception):
        assert isinstance(rendered, TemplateError)
        assert str(expected)[:190] in str(rendered)
    else:
        assert rendered == expected


def in_a_small_process(code: str, megabytes: int = 512) -> str:
    """The output of a Python program whose address space is limited."""
    start = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20}, {megabytes << 20}))
sys.path[:0] = {[SUPPORT, str(ROOT / "python")]!r}
"""
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_attacks_end_in_errors_and_hold_nobody_up() -> None:
    """All of them under 512 MB, beside a thread that notes how long it waits for its turn."""
    code = """
import json, threading, time
from dataclasses import replace
from hostile_templates import ATTACKS, COSTLY
from headrace.errors import TemplateError
from headrace.limited import start
from headrace.text.templates import process as template_process
from headrace.text.templates.chat_template import render_template

pool = template_process._pool
pool.work = replace(pool.work, cpu_seconds=0.3)  # of what would take for ever
worst, done = 0.0, threading.Event()
def watch():
    global worst
    while not done.is_set():
        start = time.monotonic()
        time.sleep(0.001)
        worst = max(worst, time.monotonic() - start)

thread = threading.Thread(target=watch)
thread.start()
seen = {}
for name, template in {**ATTACKS, **COSTLY}.items():
    start = time.monotonic()
    try:
        text = render_template(template, {"messages": []})
        seen[name] = [time.monotonic() - start, None]
        assert len(text) <= 1 << 24
    except TemplateError as error:
        seen[name] = [time.monotonic() - start, str(error)]
assert render_template("{{ 1 + 1 }}", {}) == "2"
done.set()
thread.join()
print(json.dumps([worst, seen]))
"""
    worst, seen = json.loads(in_a_small_process(code))
    assert set(seen) == {*ATTACKS, *COSTLY}
    for name, (seconds, error) in seen.items():
        assert seconds < template_process._pool.work.wall_seconds, name
        if name in ATTACKS:
            assert error is not None, name
        assert error is None or "chat template" in error, name
        assert error is None or len(error) < 400, name
    assert worst < 1.0  # one operation of these took seconds; the machine may be busy


def limit(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    pool = template_process._pool
    monkeypatch.setattr(pool, "work", replace(pool.work, **limits))  # type: ignore[arg-type]


@pytest.fixture
def little_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    template_process._pool.close()
    limit(monkeypatch, cpu_seconds=0.1)
    yield
    template_process._pool.close()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.randoms(use_true_random=False))
def test_any_template_renders_or_fails_cleanly(little_time: None, rng: Any) -> None:
    with contextlib.suppress(TemplateError):
        assert isinstance(render_template(random_template(rng), {"messages": MESSAGES}), str)


class TestVariables:
    def test_plain_data_arrives_as_it_is(self) -> None:
        data = {"t": (1, 2), "s": {3}, "b": b"x", "big": 10**50, "date": datetime.date(2020, 1, 2)}
        template = "{{ t }}{{ s }}{{ b }}{{ big }}{{ date.year }}"
        assert render_template(template, data) == f"(1, 2){{3}}b'x'{10**50}2020"

    def test_lone_surrogates(self) -> None:
        assert render_template("{{ x }}", {"x": "a\ud800"}) == "a\ud800"

    def test_what_cannot_be_sent_is_named(self) -> None:
        with pytest.raises(TemplateError, match=r"'now' .* is not plain data"):
            render_template("{{ now() }}", {"fine": 1, "now": lambda: 1})

    def test_they_have_a_largest_size(self) -> None:
        with pytest.raises(TemplateError, match="more than the 16777216 bytes allowed"):
            render_template("x", {"messages": ["a" * (1 << 20), "b" * (1 << 24)]})


def workers() -> list[Any]:
    return template_process._pool._idle


@pytest.fixture
def worker() -> Any:
    assert render_template("{{ 1 }}", {}) == "1"
    return workers()[0]


class TestProcess:
    def test_it_is_used_again(self, worker: Any) -> None:
        for _ in range(5):
            render_template("{{ 2 }}", {})
        with pytest.raises(TemplateError):
            render_template("{{ a.b.c }}", {})
        assert workers() == [worker]

    def test_one_that_died_is_replaced(self, worker: Any) -> None:
        worker._process.kill()
        assert render_template("{{ 1 }}", {}) == "1"
        assert workers() != [worker]

    def test_one_that_is_killed_at_work_is_replaced_once(self, worker: Any) -> None:
        long = "{% for i in range(10 ** 9) %}{% endfor %}"
        pid = worker._process.pid
        killer = threading.Timer(0.1, os.kill, [pid, signal.SIGKILL])
        killer.start()
        with pytest.raises(TemplateError, match=r"processor time|range"):
            render_template(long, {})
        killer.join()
        assert render_template("{{ 1 }}", {}) == "1"

    def test_one_that_hangs_is_replaced(self, worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        limit(monkeypatch, wall_seconds=0.2)
        worker._work = template_process._pool.work
        os.kill(worker._process.pid, signal.SIGSTOP)
        with pytest.raises(TemplateError, match=r"took more than 0\.2 s"):
            render_template("{{ 1 }}", {})
        monkeypatch.undo()
        assert render_template("{{ 1 }}", {}) == "1"
        assert worker._process.returncode == -signal.SIGKILL  # and waited for

    def test_ctrl_c_ends_the_call_and_mixes_up_nothing(self, worker: Any) -> None:
        endless = ATTACKS["endless loops"]
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            render_template(endless, {})
        timer.join()
        assert render_template("{{ 'mine' }}", {}) == "mine"

    def test_threads_have_one_each_and_leave_one(self) -> None:
        slow = "{% for i in range(99999) %}{% endfor %}{{ me }}"
        answers: list[str] = []

        def work(number: int) -> None:
            answers.append(render_template(slow, {"me": number}))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(int, answers)) == list(range(10))
        assert len(workers()) == 1
        assert not template_process._pool._busy

    def test_a_forked_child_starts_its_own(self, worker: Any) -> None:
        child = os.fork()
        if child == 0:
            try:
                own = render_template("{{ 'child' }}", {}) == "child"
                template_process._pool.close()
                os._exit(0 if own else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert render_template("{{ 'parent' }}", {}) == "parent"
        assert workers() == [worker]

    def test_it_ends_with_the_program_that_started_it(self) -> None:
        code = """
from headrace.text.templates import process as template_process
from headrace.text.templates.chat_template import render_template
render_template("x", {})
print(template_process._pool._idle[0]._process.pid, end="")
"""
        pid = int(in_a_small_process(code))
        assert not Path(f"/proc/{pid}").exists()
        # Also where nothing can be said at the end.
        killed = in_a_small_process(code + "import os, sys\nsys.stdout.flush()\nos._exit(0)")
        deadline = time.monotonic() + 30
        while Path(f"/proc/{killed}").exists() and "Z" not in state_of(killed):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_no_file_descriptor_is_left(self) -> None:
        def count() -> int:
            return len(os.listdir("/proc/self/fd"))

        render_template("x", {})
        before = count()
        for _ in range(3):
            with pytest.raises(TemplateError, match="MiB of memory allowed"):
                render_template(ATTACKS["str times"], {})
        render_template("x", {})
        assert count() == before

    def test_where_python_is_embedded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_host = "/usr/bin/env"  # stands for a program that has Python in it
        monkeypatch.setattr(sys, "executable", with_host)
        found = start.interpreter()
        assert found != with_host
        version = [found, "-c", "import sys; print(sys.version_info[:2])"]
        assert subprocess.check_output(version, text=True).strip() == str(sys.version_info[:2])

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda: "/bin/false/python3", "can't be started"),
            (lambda: "/bin/false", "can't start"),
        ],
    )
    def test_it_cannot_start(
        self, broken: Callable[[], str], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        template_process._pool.close()
        monkeypatch.setattr(start, "interpreter", broken)
        with pytest.raises(TemplateError, match=message):
            render_template("x", {})
        monkeypatch.undo()
        assert render_template("{{ 1 }}", {}) == "1"


def state_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return "Z"
