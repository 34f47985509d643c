"""What a call returns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from headrace.llm.keyed import KeyedPart, KeyedResult
from headrace.parsers import ToolCall
from headrace.parsers.tool_call import joined_calls
from headrace.short_repr import given_fields, short_repr


class Logprob(NamedTuple):
    """The log-probability of a token, its rank (1 = most likely) and its text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


SampleLogprobs = list[dict[int, Logprob]]  # per generated token: the chosen one and the best k
PromptLogprobs = list[dict[int, Logprob] | None]  # per prompt token; None for the first


class LogprobsLists(NamedTuple):
    """Log-probabilities as rows: one per token, columns [chosen, best, second best, ...]."""

    logprob_token_ids: list[list[int]]
    logprobs: list[list[float]]
    sampled_token_ranks: list[int]

    def slice_columns(self, start: int, end: int) -> LogprobsLists:
        """Of every row, the columns start .. end - 1."""
        return LogprobsLists(
            [row[start:end] for row in self.logprob_token_ids],
            [row[start:end] for row in self.logprobs],
            self.sampled_token_ranks,
        )

    def slice_rows(self, start: int, end: int) -> LogprobsLists:
        """The rows start .. end - 1."""
        return LogprobsLists(
            self.logprob_token_ids[start:end],
            self.logprobs[start:end],
            self.sampled_token_ranks[start:end],
        )


@dataclass(slots=True)
class SpeculateMetrics:
    """What became of guessed tokens. FastDeploy's; Headrace's counts are in `LLM.stats()`."""

    accepted_tokens: int
    rejected_tokens: int
    accept_ratio: float
    average_accept_length: float
    accepted_tokens_per_head: list[int]
    accept_ratio_per_head: list[float]


@dataclass(slots=True)
class CompletionOutput(KeyedPart):
    """One generated text.

    index: which of the prompt's n outputs this is.
    send_idx: how many tokens were sent before these: 0, except in later increments of a stream.
    token_ids: generated ids, with the end-of-sequence or stop token that ended them.
    text: their text, without that token (see SamplingParams.stop and stop_token_ids).
    finish_reason: "stop", "length", "abort" or "error"; "tool_calls" where a model that stopped has
        called functions; None while it goes on.
    stop_reason: the stop string or stop token that ended it; None for end-of-sequence and length.
    seed: what it was drawn with, also where nobody chose one: SamplingParams(seed=...) repeats it.
    logprobs, top_logprobs: per token, when SamplingParams.logprobs asks for them.
    logprob: of the last token, likewise.
    completion_tokens: the whole decoded text, with what parsers take out of `text`.
    reasoning_content: what the model thought, with LLM(reasoning_parser=...); None: nothing.
    reasoning_token_num: tokens it thought so far, without the markers.
    tool_calls: its calls, with LLM(tool_call_parser=...); None: none. In a stream, a call comes
        when it is complete; a guided one comes with its name, and its arguments as they are
        written (see ToolCall).
    """

    index: int = 0
    send_idx: int = 0
    token_ids: list[int] = field(default_factory=list)
    decode_type: int = 0
    logprob: float | None = None
    top_logprobs: LogprobsLists | None = None
    draft_top_logprobs: LogprobsLists | None = None
    logprobs: SampleLogprobs | None = None
    draft_token_ids: list[int] | None = None
    text: str = ""
    reasoning_content: str | None = None
    reasoning_token_num: int = 0
    tool_calls: list[ToolCall] | None = None
    speculate_metrics: Any = None
    completion_tokens: str | None = None
    delta_message: Any = None
    multipart: list[Any] | None = None
    num_image_tokens: int | None = None
    sampling_mask: Any = None
    finish_reason: str | None = None
    stop_reason: int | str | list[int] | None = None
    seed: int | None = field(default=None, compare=False)  # equal outputs may be of others

    @property
    def resoning_content(self) -> str | None:
        """reasoning_content, as FastDeploy's first pages spell it."""
        return self.reasoning_content

    def __repr__(self) -> str:
        return short_repr(self, self._summary())

    def _summary(self) -> dict[str, Any]:
        """What matters most of it."""
        place = {"index": self.index} if self.index else {}
        return {
            **place,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
        }

    def add(self, next_output: CompletionOutput) -> None:
        """Appends another increment's tokens, with their log-probabilities; not its texts."""
        self.index = next_output.index
        self.token_ids = [*self.token_ids, *next_output.token_ids]
        if next_output.logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *next_output.logprobs]
            self.logprob = next_output.logprob if next_output.logprobs else self.logprob
        self.top_logprobs = _joined_rows(self.top_logprobs, next_output.top_logprobs)
        self.draft_top_logprobs = _joined_rows(
            self.draft_top_logprobs, next_output.draft_top_logprobs
        )
        self.draft_token_ids = _joined(self.draft_token_ids, next_output.draft_token_ids)
        self.speculate_metrics = next_output.speculate_metrics or self.speculate_metrics
        self.reasoning_token_num = next_output.reasoning_token_num or self.reasoning_token_num
        self.finish_reason = next_output.finish_reason
        self.stop_reason = next_output.stop_reason
        self.seed = self.seed if next_output.seed is None else next_output.seed

    def accumulate(self, next_output: CompletionOutput) -> None:
        """Appends the next increment of a stream, its texts too."""
        self.text = _joined(self.text, next_output.text)
        self.reasoning_content = _joined(self.reasoning_content, next_output.reasoning_content)
        self.completion_tokens = _joined(self.completion_tokens, next_output.completion_tokens)
        if next_output.tool_calls:
            self.tool_calls = joined_calls([*(self.tool_calls or ()), *next_output.tool_calls])
        self.add(next_output)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists all the way down."""
        return asdict(self)

    @classmethod
    def from_dict(cls, req_dict: Mapping[str, Any]) -> CompletionOutput:
        """The inverse of to_dict, also by way of JSON; unknown keys are ignored."""
        values = _known(cls, req_dict)
        for name in ("top_logprobs", "draft_top_logprobs"):
            if values.get(name) is not None:
                values[name] = LogprobsLists(*values[name])
        if values.get("logprobs") is not None:
            values["logprobs"] = _logprob_dicts(values["logprobs"])
        if values.get("tool_calls") is not None:
            values["tool_calls"] = [_tool_call(call) for call in values["tool_calls"]]
        if isinstance(values.get("speculate_metrics"), Mapping):
            values["speculate_metrics"] = SpeculateMetrics(**values["speculate_metrics"])
        return cls(**values)


@dataclass(slots=True)
class RequestMetrics(KeyedPart):
    """When what happened, in seconds. Times of day count from the epoch; None: has not happened.

    arrival_time (= request_start_time): the call received the request; by default, now.
    preprocess_start_time, preprocess_end_time, preprocess_cost_time: templates and tokenization.
    scheduler_recv_req_time (= engine_get_req_time): the engine's queue received it.
    inference_start_time: its first tokens entered a step.
    time_in_queue: inference_start_time - preprocess_end_time.
    first_token_time: from inference_start_time to the first token.
    model_forward_time: from inference_start_time to the last token.
    model_execute_time: from arrival_time to the last token.
    gpu_cache_token_num: prompt tokens found in the prefix cache, without
    cpu_cache_token_num: those that came back from swap_space.
    preempted_count: how often it lost its KV blocks and was recomputed.
    Fields of split prefill and decode servers, of cache storage and of speculative decoding keep
    their default.
    """

    arrival_time: float | None = None
    preprocess_start_time: float | None = None
    preprocess_end_time: float | None = None
    scheduler_recv_req_time: float | None = None
    engine_get_req_time: float | None = None
    ask_decode_resource_start_time: float | None = None
    ask_decode_resource_finish_time: float | None = None
    add_req_to_resource_manager_time: float | None = None
    inference_start_time: float | None = None
    engine_recv_latest_token_time: float | None = None
    engine_recv_first_token_time: float | None = None
    wait_for_sending_cache_time: float | None = None
    send_request_output_to_decode_time: float | None = None
    decode_recv_req_time: float | None = None
    decode_preallocate_req_time: float | None = None
    decode_recv_first_token_time: float | None = None
    decode_inference_start_time: float | None = None
    decode_recv_second_token_time: float | None = None
    first_token_time: float | None = None
    time_in_queue: float | None = None
    preprocess_cost_time: float | None = None
    model_forward_time: float | None = None
    model_execute_time: float | None = None
    request_start_time: float | None = None
    llm_engine_recv_req_timestamp: float | None = None
    llm_engine_send_req_to_engine_timestamp: float | None = None
    llm_engine_send_req_to_decoder_engine_timestamp: float | None = None
    llm_engine_recv_latest_token_timestamp: float | None = None
    llm_engine_recv_token_timestamp: float | None = None
    speculate_metrics: Any = None
    prompt_token_ids_len: int = 0
    gpu_cache_token_num: int = 0
    cpu_cache_token_num: int = 0
    storage_cache_token_num: int = 0
    cpu_cache_prepare_time: float | None = None
    storage_cache_prepare_time: float | None = None
    preempted_count: int = 0

    def __post_init__(self) -> None:
        if self.arrival_time is None:
            self.arrival_time = time.time()

    def __repr__(self) -> str:
        return short_repr(self, given_fields(self))

    def add(self, following: RequestMetrics) -> None:
        """Takes over what a later increment knows; the arrival stays."""
        for item in fields(self):
            value = getattr(following, item.name)
            if value and item.name not in ("arrival_time", "request_start_time"):
                setattr(self, item.name, value)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, req_dict: Mapping[str, Any]) -> RequestMetrics:
        """The inverse of to_dict; unknown keys are ignored."""
        return cls(**_known(cls, req_dict))


@dataclass
class RequestOutput(KeyedResult):
    """The result of one request, or an increment of it in a stream.

    prompt: what the caller passed to `generate` (of a dict with images or clips its text, or the
        dict without them), or the text `chat` made of the conversation.
    prompt_token_ids: the ids the model read, one for each row of an image or a clip.
    prompt_logprobs: when SamplingParams.prompt_logprobs asks for them; the first is None.
    outputs: the generated text. Of a failed request: empty. outputs and metrics are None only in an
        object that was made without them, never in one that a call returns.
    finished: nothing more will come.
    num_cached_tokens: prompt tokens taken from the prefix cache, swap_space included.
    num_input_image_tokens, num_input_video_tokens: prompt tokens that stand for rows of these.
    error_code, error_msg: 200 and None; 400 for a bad request, 500 for a failure of the engine,
        with a message. An aborted request has 200 and "Aborted".
    """

    request_id: str
    prompt: Any = None
    prompt_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    output_type: int = 3
    outputs: CompletionOutput = None  # type: ignore[assignment]
    finished: bool = False
    metrics: RequestMetrics = None  # type: ignore[assignment]
    num_cached_tokens: int = 0
    num_input_image_tokens: int = 0
    num_input_video_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None
    ic_req_data: dict[str, Any] | None = None
    prompt_token_ids_len: int = 0
    trace_carrier: dict[str, Any] = field(default_factory=dict)
    routing_data: Any = field(default=None, kw_only=True)
    accumulate_tool_calls: list[Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        ids = self.prompt_token_ids
        if ids is None:
            self.prompt_token_ids = []
        elif hasattr(ids, "tolist"):
            self.prompt_token_ids = ids.tolist()
        self.prompt_token_ids_len = self.prompt_token_ids_len or len(self.prompt_token_ids)
        if self.accumulate_tool_calls is None and self.outputs and self.outputs.tool_calls:
            self.accumulate_tool_calls = [self.outputs.tool_calls]

    def __repr__(self) -> str:
        outputs = getattr(self, "outputs", None)  # keys can be deleted
        message = getattr(self, "error_msg", None)
        failure = {"error_code": getattr(self, "error_code", None), "error_msg": message}
        return short_repr(
            self,
            {
                **({} if outputs is None else outputs._summary()),
                **(failure if message else {}),
            },
        )

    def add(self, next_output: RequestOutput) -> None:
        """Merges the tokens and metrics of another increment into this one; not its texts."""
        self._merge(next_output)
        if self.outputs is not None and next_output.outputs is not None:
            self.outputs.add(next_output.outputs)

    def accumulate(self, next_output: RequestOutput) -> None:
        """Appends the next increment of a stream: texts, reasoning and tool calls, too."""
        self._merge(next_output)
        if self.outputs is not None and next_output.outputs is not None:
            self.outputs.accumulate(next_output.outputs)
            if next_output.outputs.tool_calls:
                calls = self.accumulate_tool_calls or []
                self.accumulate_tool_calls = [*calls, next_output.outputs.tool_calls]

    def _merge(self, following: RequestOutput) -> None:
        if following.prompt is not None:
            self.prompt = following.prompt
        self.prompt_token_ids = following.prompt_token_ids or self.prompt_token_ids
        self.prompt_logprobs = following.prompt_logprobs or self.prompt_logprobs
        self.finished = self.finished or following.finished
        if self.metrics is not None and following.metrics is not None:
            self.metrics.add(following.metrics)
        self.metrics = self.metrics or following.metrics
        self.num_cached_tokens = following.num_cached_tokens or self.num_cached_tokens
        self.error_code, self.error_msg = following.error_code, following.error_msg
        if self.outputs is None and following.outputs is not None:
            self.outputs = CompletionOutput(index=following.outputs.index)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists all the way down."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> RequestOutput:
        """The inverse of to_dict, also by way of JSON; unknown keys are ignored."""
        values = _known(cls, d)
        if isinstance(values.get("outputs"), Mapping):
            values["outputs"] = CompletionOutput.from_dict(values["outputs"])
        if isinstance(values.get("metrics"), Mapping):
            values["metrics"] = RequestMetrics.from_dict(values["metrics"])
        if isinstance(values.get("prompt_logprobs"), list):
            values["prompt_logprobs"] = _logprob_dicts(values["prompt_logprobs"])
        return cls(**values)


# The defaults are in __init__; without those of the class, what is deleted by key is gone.
for _field in fields(RequestOutput):
    if hasattr(RequestOutput, _field.name):
        delattr(RequestOutput, _field.name)


def _joined(mine: Any, following: Any) -> Any:
    """Texts or lists, either of which may be None."""
    if mine is None or following is None:
        return following if mine is None else mine
    return mine + following


def _joined_rows(
    mine: LogprobsLists | None, following: LogprobsLists | None
) -> LogprobsLists | None:
    if mine is None or following is None:
        return following if mine is None else mine
    return LogprobsLists(
        mine.logprob_token_ids + following.logprob_token_ids,
        mine.logprobs + following.logprobs,
        mine.sampled_token_ranks + following.sampled_token_ranks,
    )


def _known(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(cls) if f.name in values}


def _logprob_dicts(positions: list[Any]) -> list[Any]:
    """As they were before JSON made strings of ids and lists of Logprobs."""
    return [
        position
        and {int(token): Logprob(*_logprob_values(entry)) for token, entry in position.items()}
        for position in positions
    ]


def _logprob_values(entry: Any) -> Any:
    return entry.values() if isinstance(entry, Mapping) else entry


def _tool_call(call: Any) -> Any:
    known = isinstance(call, Mapping) and "id" in call
    return ToolCall.from_dict(call) if known else call
