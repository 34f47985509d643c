"""What objects and enumerations print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace import (
    LLM,
    CompletionOutput,
    Engine,
    EngineArgs,
    FinishReason,
    GenerationConfig,
    ModelOptions,
    RequestMetrics,
    RequestOutput,
    native,
)


def test_llm(make_llm: Callable[..., LLM], toy_folder: Path) -> None:
    llm = make_llm()
    facts = "family='toy', device='cpu', dtype='float32', max_model_len=512"
    assert repr(llm) == f"LLM(path='{toy_folder}', {facts})"
    llm.close()
    assert repr(llm).endswith("max_model_len=512, closed=True)")
    assert repr(LLM.__new__(LLM)) == "LLM(not loaded)"


def test_outputs() -> None:
    completion = CompletionOutput(text="4.", token_ids=[5, 6], finish_reason="stop")
    facts = "text='4.', token_ids=[5, 6], finish_reason='stop'"
    assert repr(completion) == f"CompletionOutput({facts})"
    output = RequestOutput("a-long-id", prompt="2 + 2", outputs=completion)
    assert repr(output) == f"RequestOutput({facts})"
    completion.index = 1
    assert repr(completion).startswith("CompletionOutput(index=1, text=")


def test_a_failed_output_says_why(llm: LLM) -> None:
    (output,) = llm.generate([""], use_tqdm=False)
    assert "finish_reason='error', error_code=400, error_msg='Invalid input" in repr(output)


def test_long_outputs_are_cut() -> None:
    completion = CompletionOutput(text="word " * 1000, token_ids=list(range(1000)))
    assert "... (5000 characters)" in repr(completion)
    assert "token_ids=[0, 1, 2, 3, 4, 5, 6, 7, ... (1000 in all)]" in repr(completion)
    assert len(repr(completion)) < 250


def test_only_what_was_given() -> None:
    assert repr(RequestMetrics(arrival_time=1.5)) == "RequestMetrics(arrival_time=1.5)"
    assert repr(GenerationConfig(seed=3)) == "GenerationConfig(seed=3)"
    assert repr(EngineArgs(dtype="float16")) == "EngineArgs(dtype='float16')"


def test_enumerations_print_their_names() -> None:
    for value in (
        FinishReason.STOP,
        native.RequestStatus.PREFILL,
        native.ModelState.RUNNING,
        native.LogprobsKind.RAW_LOGITS,
        native.OutOfBlocks.PREEMPT,
    ):
        name = f"{type(value).__name__}.{value.name}"
        assert (str(value), f"{value}", f"{value:>30}") == (name, name, f"{name:>30}")
    assert int(FinishReason.STOP) == 1


def test_a_request_and_its_output(native_engine: Engine) -> None:
    config = GenerationConfig(temperature=0, max_tokens=3, ignore_eos=True)
    request = native_engine.submit("m", [5, 6], config, request_id="mine")
    output = request.results().get(60)
    request.wait()
    end = "status=RequestStatus.FINISHED, finish_reason=FinishReason.LENGTH"
    assert repr(request) == f"Request(id='mine', prompt_tokens=2, generated_tokens=3, {end})"
    assert repr(request.results()) == f"ResultQueue(generated_tokens=3, {end})"
    assert output is not None
    assert repr(output).startswith(f"Output(token_ids=[{output.token_ids[0]}")
    assert repr(native_engine) == "Engine(models=['m'])"
    native_engine.close()
    assert repr(native_engine) == "Engine(closed=True)"


def test_what_the_extension_reports(native_engine: Engine) -> None:
    native_engine.submit("m", [5, 6], GenerationConfig(max_tokens=1)).wait()
    stats = repr(native_engine.model_stats("m"))
    assert stats.startswith("ModelStats(state=ModelState.RUNNING, running_replicas=1, total_kv")
    assert "finished_requests=1" in stats
    assert "preemptions" not in stats  # there are none
    info = repr(native_engine.model_info("m"))
    assert info.startswith("ModelInfo(name='m', path='")
    assert "family='llama'" in info
    assert repr(ModelOptions(path="x")).startswith("ModelOptions(path='x', device='auto'")
