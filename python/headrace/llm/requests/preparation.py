"""From a caller's prompt to a request that the engine can run, without the engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace import native
from headrace.llm.requests.constraints import Constraints
from headrace.llm.requests.planner import RequestPlanner, check_shared
from headrace.media.item import MediaItem
from headrace.media.requests.loading import Loading
from headrace.media.requests.placing import rows_of
from headrace.native.media import media_inputs
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import SamplingParams
from headrace.parsers.output_plan import OutputPlan
from headrace.prompts import Prompt
from headrace.text.output_text import StopStrings


@dataclass(slots=True)
class Job:
    """One prompt of a call. What is wrong with it is raised by `prompt`, and fails it alone.

    find: starts to load its images and clips (prompts.find_media). read: makes it ready, with them.
    request_id: the caller's; None: the prompt's own, or a new one for each output.
    """

    original: Any
    find: Callable[[], Loading | None]
    read: Callable[[Sequence[MediaItem]], Prompt]
    params: SamplingParams
    lora: LoRARequest | None = None
    request_id: str | None = None
    _loading: Loading | Exception | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)

    def begin(self) -> Loading | None:
        """Starts to load what it has of images and clips; None: nothing is to be waited for."""
        if not self._begun:
            self._begun = True
            try:
                self._loading = self.find()
            except Exception as error:
                self._loading = error
        return self._loading if isinstance(self._loading, Loading) else None

    def prompt(self) -> Prompt:
        """Waits for them, and reads the prompt."""
        loading = self.begin()
        if isinstance(self._loading, Exception):
            raise self._loading
        items = () if loading is None else loading.items()
        self._loading = None  # their pixels
        return self.read(items)

    def drop(self) -> None:
        """What has not begun to be loaded isn't."""
        if isinstance(self._loading, Loading):
            self._loading.cancel()


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
    image_tokens: int = 0  # of the prompt's
    video_tokens: int = 0
    seed: int | None = None  # that it draws with


@dataclass(slots=True)
class PreparedRequest:
    """One output of a prompt, ready to be submitted."""

    facts: RequestFacts
    config: native.GenerationConfig
    constraint: Any = None  # of headrace.grammar.compile_constraint
    stops: StopStrings | None = None
    lora: LoRARequest | None = None
    parsing: OutputPlan | None = None
    media: Sequence[native.MediaInput] = ()
    continues: bool = False  # its text goes on from the prompt's
    pixel_bytes: int = 0  # of these; outputs share them, and the first has them all


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
) -> list[PreparedRequest]:
    """Reads the prompt, which fills in `facts`: one request for each of the n outputs, which have
    no constraints yet.

    stops: of the job's stop strings.
    Raises what session.request_errors() lists for a prompt that can't be served.
    """
    prompt = job.prompt()
    ids = planner.shortened(job.params, prompt.token_ids)
    if prompt.media and len(ids) < len(prompt.token_ids):
        raise ValueError("truncate_prompt_tokens would cut a prompt with images or clips")
    own_id = prompt.request_id if job.request_id is None else None
    for item in facts:
        item.prompt, item.prompt_token_ids = prompt.shown, ids
        item.image_tokens = rows_of(prompt.media, "image")
        item.video_tokens = rows_of(prompt.media, "video")
        item.preprocess_end_time = time.time()
        item.request_id = _output_id(own_id, item.index, job.params.n) or item.request_id
    check_shared(job.params, planner.args, planner.info.vocab_size)
    if stops is not None and planner.tokenizer is None:
        raise ValueError("stop strings need a tokenizer, and the model folder has none")
    configs = planner.plan(job.params, len(ids), prompt.bad_words)
    for item, config in zip(facts, configs, strict=True):
        item.seed = config.seed
    parsing = planner.parsing.plan(prompt.parts, job.params)
    media = media_inputs(prompt.media)
    size = sum(placed.item.nbytes for placed in prompt.media)
    return [
        PreparedRequest(
            item,
            config,
            None,
            stops,
            job.lora,
            parsing,
            media,
            continues=not prompt.parts.opens_answer,
            pixel_bytes=0 if item.index else size,
        )
        for item, config in zip(facts, configs, strict=True)
    ]


def constrain(
    requests: Sequence[PreparedRequest], params: SamplingParams, constraints: Constraints
) -> None:
    """Gives the outputs of a prompt their constraint, which may have to be compiled. Raises what
    session.request_errors() lists."""
    parsing = requests[0].parsing
    if parsing is None:
        compiled = constraints.of(params)
    else:
        compiled = parsing.constraint(
            constraints.grammar(params), constraints.enabled, constraints.compile, constraints.notes
        )
    for request in requests:
        request.constraint = compiled


def takes_grammars(requests: Sequence[PreparedRequest], params: SamplingParams) -> bool:
    """Whether `constrain` compiles."""
    parsing = requests[0].parsing
    return is_guided(params) or (parsing is not None and parsing.has_calls)


def is_guided(params: SamplingParams) -> bool:
    """Whether `params` themselves ask for a constraint."""
    return params.guided_decoding is not None or params.allowed_token_ids is not None


def text_size(original: Any) -> int:
    """About how many characters a prompt or a conversation has."""
    if isinstance(original, str):
        return len(original)
    if isinstance(original, Mapping):
        return text_size(original.get("prompt") or original.get("messages"))
    if not isinstance(original, (list, tuple)) or not original or isinstance(original[0], int):
        return 0  # ids
    return sum(
        text_size(item.get("content") or item.get("text"))
        for item in original
        if isinstance(item, Mapping)
    )


def _output_id(request_id: str | None, index: int, count: int) -> str | None:
    return f"{request_id}_{index}" if request_id is not None and count > 1 else request_id
