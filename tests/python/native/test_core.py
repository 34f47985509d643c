"""The extension itself: its stub, its errors, the GIL, signals and the end of the interpreter."""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT

from headrace import _core

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1 << 20,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "eos_token_id": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def options(folder: Path) -> _core.ModelOptions:
    return _core.ModelOptions(
        path=str(folder), dummy_weights=True, num_threads=1, max_num_seqs=8, kv_cache_bytes=64 << 20
    )


def greedy(max_tokens: int) -> _core.SamplingParams:
    return _core.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


ENDLESS = greedy(100_000)


@pytest.fixture
def engine(folder: Path) -> Iterator[_core.Engine]:
    engine = _core.Engine()
    engine.install_model("m", options(folder))
    engine.start_model("m")
    yield engine
    engine.close()


def submit(engine: _core.Engine, params: _core.SamplingParams = ENDLESS) -> _core.Request:
    return engine.submit("m", prompt_token_ids=[5, 6, 7], sampling=params)


def read_all(queue: _core.ResultQueue) -> list[int]:
    tokens: list[int] = []
    while True:
        output = queue.get()
        assert output is not None
        tokens += output.token_ids
        if output.finished:
            return tokens


# --- the stub ------------------------------------------------------------------------------------


def stub_of(name: str) -> ast.Module:
    return ast.parse((ROOT / "python" / "headrace" / "_core.pyi").read_text(), name)


def test_the_stub_states_the_defaults() -> None:
    options = ("SamplingParams", "PoolingParams", "SpeculativeOptions", "ModelOptions")
    for node in stub_of("_core").body:
        if isinstance(node, ast.ClassDef) and node.name in options:
            init = next(n for n in node.body if isinstance(n, ast.FunctionDef))
            made = getattr(_core, node.name)(
                **({"path": "p"} if node.name == "ModelOptions" else {})
            )
            for arg, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
                if default is None or ast.unparse(default) == "...":
                    continue
                expected = eval(compile(ast.Expression(default), "stub", "eval"), vars(_core))
                actual = getattr(made, arg.arg)
                actual = tuple(actual) if isinstance(actual, list) else actual
                assert actual == pytest.approx(expected), arg.arg


# --- arguments and errors ------------------------------------------------------------------------


def test_options_are_keywords_of_the_right_type() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        _core.SamplingParams(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="cannot use 'hot' as 'temperature'"):
        _core.SamplingParams(temperature="hot")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs the keyword argument 'path'"):
        _core.ModelOptions()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        _core.SamplingParams(0.5)  # type: ignore[call-arg]
    params = _core.SamplingParams(bad_words=[[1, 2], [3]], logit_bias=[(4, 0.5)], seed=2**64 - 1)
    assert params.bad_words == [[1, 2], [3]]
    assert params.logit_bias == [(4, 0.5)]
    assert params.seed == 2**64 - 1
    params.max_tokens = 9
    assert params.max_tokens == 9


def test_errors_have_codes(engine: _core.Engine) -> None:
    with pytest.raises(_core.HeadraceError, match="no model 'x'") as not_found:
        engine.model_info("x")
    assert not_found.value.code == "not_found"
    assert not isinstance(not_found.value, ValueError)
    with pytest.raises(ValueError, match="top_p must be in") as invalid:
        submit(engine, _core.SamplingParams(top_p=2.0))
    assert isinstance(invalid.value, _core.InvalidArgumentError)
    assert invalid.value.code == "invalid_argument"
    for bad in (-1, 97, 2**40):
        with pytest.raises(ValueError, match=rf"prompt_token_ids\[1\] is {bad}"):
            engine.submit("m", prompt_token_ids=[1, bad], sampling=ENDLESS)
    with pytest.raises(ValueError, match="nan"):
        submit(engine).results().get(timeout=float("nan"))
    with pytest.raises(_core.HeadraceError) as too_long:
        engine.submit("m", prompt_token_ids=[1] * 2_000_000, sampling=ENDLESS)
    assert too_long.value.code == "limit_exceeded"


def test_a_closed_engine_says_so(folder: Path) -> None:
    engine = _core.Engine()
    engine.install_model("m", options(folder))
    engine.start_model("m")
    request = submit(engine)
    engine.close()
    engine.close()
    read_all(request.results())
    assert request.results().status() is _core.RequestStatus.FINISHED
    for call in (engine.models, lambda: submit(engine), lambda: engine.start_model("m")):
        with pytest.raises(_core.HeadraceError, match="closed") as closed:
            call()
        assert closed.value.code == "invalid_state"


def test_model_family_reads_the_config_alone(folder: Path) -> None:
    info = _core.model_family(str(folder))
    assert (info.family, info.vocab_size, info.eos_token_ids) == ("llama", 97, [2])
    assert info.num_parameters > 0
    assert info.weight_bytes == 0
    assert info.name == ""


# --- results ------------------------------------------------------------------------------------


def test_outputs_and_statistics(engine: _core.Engine) -> None:
    params = greedy(8)
    params.logprobs = 2
    params.prompt_logprobs = 1
    request = submit(engine, params)
    assert request.wait(60)
    output = request.results().get_nowait()
    assert output is not None
    assert len(output.token_ids) == len(output.logprobs) == 8
    assert [entry.token for entry in output.prompt_logprobs] == [6, 7]
    assert output.logprobs[0].top[0] == (output.token_ids[0], output.logprobs[0].logprob)
    assert output.finish_reason is _core.FinishReason.LENGTH
    assert output.error_code == "ok"
    assert request.results().get_nowait() is None
    last = request.results().get()
    assert last is not None
    assert last.finished
    assert last.token_ids == []
    stats = request.results().stats()
    assert (stats.prompt_tokens, stats.generated_tokens) == (3, 8)
    assert abs(stats.finished_time - time.time()) < 3600
    assert engine.model_stats("m").state is _core.ModelState.RUNNING


def test_timeouts_pass(engine: _core.Engine) -> None:
    queue = submit(engine).results()
    selector = _core.OutputSelector()
    assert selector.wait(timeout=0) == []
    assert selector.wait(timeout=0.01) == []
    request = engine.submit("m", prompt_token_ids=[1], sampling=ENDLESS, timeout=0.05)
    tokens = read_all(request.results())
    assert len(tokens) < 100_000
    assert not submit(engine).wait(timeout=0)
    while queue.get_nowait() is not None:
        pass


def test_a_selector_serves_a_batch(engine: _core.Engine) -> None:
    selector = _core.OutputSelector()
    queues = {}
    for tag in range(20):
        queues[tag] = submit(engine, greedy(5 + tag)).results()
        selector.add(queues[tag], tag)
    counts = dict.fromkeys(queues, 0)
    while queues:
        for tag in selector.wait(timeout=60):
            while (output := queues[tag].get_nowait()) is not None:
                counts[tag] += len(output.token_ids)
                if output.finished:
                    selector.remove(tag)
                    del queues[tag]
                    break
    assert counts == {tag: 5 + tag for tag in range(20)}


def test_callbacks_run_and_are_let_go(
    engine: _core.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Callback:
        calls = 0

        def __call__(self) -> None:
            self.calls += 1
            raise RuntimeError("from the callback")

    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    callback = Callback()
    gone = weakref.ref(callback)
    request = submit(engine, greedy(3))
    request.results().on_output(callback)
    assert request.wait(60)
    while not raised:
        time.sleep(0.001)
    assert raised[0].exc_type is RuntimeError
    assert callback.calls >= 1
    del callback
    while gone() is not None:  # the engine's thread may still be leaving it
        raised.clear()
        gc.collect()
        time.sleep(0.001)


def test_a_callback_may_drop_the_engine(folder: Path) -> None:
    engine: _core.Engine | None = _core.Engine()
    assert engine is not None
    engine.install_model("m", options(folder))
    engine.start_model("m")
    request = submit(engine)
    called = threading.Event()

    def drop() -> None:
        nonlocal engine
        engine = None
        called.set()

    request.results().on_output(drop)
    assert called.wait(60)
    assert request.wait(60)


# --- the GIL and signals --------------------------------------------------------------------------


def waits(engine: _core.Engine) -> dict[str, Callable[[], Any]]:
    """Calls that wait for ever."""
    request = submit(engine)
    idle = _core.OutputSelector()

    def get() -> None:
        while True:
            request.results().get()

    return {
        "get": get,
        "request": request.wait,
        "selector": idle.wait,
        "stop": lambda: engine.stop_model("m"),
    }


@pytest.mark.parametrize("which", ["get", "request", "selector", "stop"])
def test_ctrl_c_ends_a_wait(engine: _core.Engine, which: str) -> None:
    wait = waits(engine)[which]
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    timer.join()


@pytest.mark.parametrize("which", ["request", "selector", "stop"])
def test_others_run_while_one_waits(engine: _core.Engine, which: str) -> None:
    wait = waits(engine)[which]

    def wait_for_ever() -> None:
        with contextlib.suppress(_core.HeadraceError):  # the test may close the engine first
            wait()

    threading.Thread(target=wait_for_ever, daemon=True).start()
    done = threading.Event()
    threading.Thread(target=done.set).start()
    assert done.wait(60)


def test_an_idle_wait_uses_no_cpu(engine: _core.Engine) -> None:
    selector = _core.OutputSelector()
    thread = threading.Thread(target=lambda: selector.wait(timeout=0.5))
    before = time.process_time()
    thread.start()
    thread.join()
    assert time.process_time() - before < 0.1


# --- the end of the interpreter -------------------------------------------------------------------

PRELUDE = """
import sys, threading, time
sys.path[:0] = {path!r}
from headrace import _core
engine = _core.Engine(log_sink=lambda level, message: None)
engine.install_model("m", _core.ModelOptions(
    path={folder!r}, dummy_weights=True, num_threads=1, kv_cache_bytes=64 << 20))
engine.start_model("m")
def submit():
    return engine.submit("m", prompt_token_ids=[5, 6, 7], sampling=_core.SamplingParams(
        temperature=0, max_tokens=100_000, ignore_eos=True))
"""


def run_to_the_end(folder: Path, script: str) -> None:
    text = PRELUDE.format(path=sys.path, folder=str(folder)) + textwrap.dedent(script)
    env = dict(os.environ, HEADRACE_LOG_LEVEL="debug")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=env
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.endswith("end\n"), done


EXITS = {
    "a forgotten engine": """
        requests = [submit() for _ in range(5)]
        print("end")
        """,
    "callbacks in flight": """
        def callback():
            sum(range(100))
        requests = [submit() for _ in range(8)]
        for request in requests:
            request.results().on_output(callback)
        time.sleep(0.05)
        print("end")
        """,
    "daemon threads in every wait": """
        request = submit()
        selector = _core.OutputSelector()
        def read():
            queue = request.results()
            while True:
                queue.get()
        for target in (read, read, request.wait, selector.wait, lambda: engine.stop_model("m")):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.05)
        print("end")
        """,
    "a daemon thread that submits": """
        def client():
            while True:
                submit().cancel()
        threading.Thread(target=client, daemon=True).start()
        time.sleep(0.05)
        print("end")
        """,
    "an engine in a cycle": """
        class Owner:
            pass
        owner = Owner()
        owner.self, owner.engine, owner.request = owner, engine, submit()
        del owner, engine
        print("end")
        """,
    "use in another exit handler": """
        import atexit
        late = submit()
        def handler():
            assert late.results().get().token_ids
            print("end")
        atexit.register(handler)
        """,
    "an exception": """
        request = submit()
        threading.Thread(target=request.wait, daemon=True).start()
        print("end")
        sys.exit(0)
        """,
    "a forked child": """
        import os
        request = submit()
        sys.stdout.flush()
        def callback():
            sum(range(100))
        request.results().on_output(callback)  # a thread of the parent is often in the gate
        child = os.fork()
        if child == 0:
            try:
                engine.models()
            except _core.HeadraceError as error:
                assert "fork" in str(error), error
                sys.exit(7)
            sys.exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        print("end")
        """,
}


@pytest.mark.parametrize("name", list(EXITS))
def test_the_interpreter_ends_quietly(folder: Path, name: str) -> None:
    run_to_the_end(folder, EXITS[name])


def test_the_module_is_documented() -> None:
    module: ModuleType = _core
    assert inspect.getdoc(module)
    assert _core.__version__
