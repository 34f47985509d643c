"""From a caller's prompt to a request that the engine can run, without the engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace import native
from headrace.llm.request_params import RequestPlanner, check_shared
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import SamplingParams
from headrace.parsers.output_plan import OutputPlan
from headrace.prompts import Prompt
from headrace.text.stop_strings import StopStrings


@dataclass(slots=True)
class Job:
    """One prompt of a call. `read` makes it ready; its ValueErrors fail this prompt alone.

    request_id: the caller's; None: the prompt's own, or a new one for each output.
    """

    original: Any
    read: Callable[[], Prompt]
    params: SamplingParams
    lora: LoRARequest | None = None
    request_id: str | None = None


@dataclass(slots=True)
class RequestFacts:
    """What is known of a request before it runs."""

    request_id: str
    index: int  # which of its prompt's n outputs
    prompt: Any
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival_time: float
    preprocess_start_time: float
    preprocess_end_time: float = 0.0


@dataclass(slots=True)
class PreparedRequest:
    """One output of a prompt, ready to be submitted."""

    facts: RequestFacts
    config: native.GenerationConfig
    constraint: Any = None  # of headrace.grammar.compile_constraint
    stops: StopStrings | None = None
    lora: LoRARequest | None = None
    parsing: OutputPlan | None = None


def new_facts(job: Job, arrival: float) -> list[RequestFacts]:
    """Of the n outputs of a job, before its prompt is read."""
    return [
        RequestFacts(
            request_id=_output_id(job.request_id, index, job.params.n) or str(uuid.uuid4()),
            index=index,
            prompt=job.original,
            prompt_token_ids=[],
            params=job.params,
            arrival_time=arrival,
            preprocess_start_time=time.time(),
        )
        for index in range(job.params.n)
    ]


def prepare(
    job: Job,
    facts: list[RequestFacts],
    planner: RequestPlanner,
    stops: StopStrings | None,
    constraint: Callable[[], Any],
) -> list[PreparedRequest]:
    """Reads the prompt, which fills in `facts`: one request for each of the n outputs.

    stops: of the job's stop strings. constraint: compiles what its guided_decoding asks for.
    Raises what session.request_errors() lists for a prompt that can't be served.
    """
    prompt = job.read()
    own_id = prompt.request_id if job.request_id is None else None
    for item in facts:
        item.prompt, item.prompt_token_ids = prompt.shown, prompt.token_ids
        item.preprocess_end_time = time.time()
        item.request_id = _output_id(own_id, item.index, job.params.n) or item.request_id
    check_shared(job.params, planner.args, planner.info.vocab_size)
    if stops is not None and planner.tokenizer is None:
        raise ValueError("stop strings need a tokenizer, and the model folder has none")
    planner.check_ids(prompt.token_ids)
    configs = planner.plan(job.params, len(prompt.token_ids), prompt.bad_words)
    compiled = constraint()
    parsing = planner.parsing.plan(prompt.parts, job.params)
    if parsing is not None:
        compiled = parsing.constraint(compiled, planner.guided)
    return [
        PreparedRequest(item, config, compiled, stops, job.lora, parsing)
        for item, config in zip(facts, configs, strict=True)
    ]


def _output_id(request_id: str | None, index: int, count: int) -> str | None:
    return f"{request_id}_{index}" if request_id is not None and count > 1 else request_id
