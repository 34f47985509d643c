"""What a call returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

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


@dataclass(slots=True)
class CompletionOutput:
    """One generated text.

    index: which of the prompt's n outputs this is.
    send_idx: how many tokens were sent before these: 0, except in later increments of a stream.
    token_ids: generated ids, with the end-of-sequence or stop token that ended them.
    text: their text, without that token (see SamplingParams.stop and stop_token_ids).
    finish_reason: "stop", "length", "abort" or "error"; None while it goes on.
    stop_reason: the stop string or stop token that ended it; None for end-of-sequence and length.
    logprobs, top_logprobs: per token, when SamplingParams.logprobs asks for them.
    logprob: of the last token, likewise.
    completion_tokens: the whole decoded text.
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
    tool_calls: list[Any] | None = None
    speculate_metrics: Any = None
    completion_tokens: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | list[int] | None = None

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

    def add(self, following: CompletionOutput) -> None:
        """Appends the next increment of a stream."""
        self.token_ids = [*self.token_ids, *following.token_ids]
        self.text = (self.text or "") + (following.text or "")
        self.completion_tokens = (self.completion_tokens or "") + (
            following.completion_tokens or ""
        )
        if following.logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *following.logprobs]
            self.logprob = following.logprob if following.logprobs else self.logprob
        if following.top_logprobs is not None:
            mine = self.top_logprobs or LogprobsLists([], [], [])
            self.top_logprobs = LogprobsLists(
                mine.logprob_token_ids + following.top_logprobs.logprob_token_ids,
                mine.logprobs + following.top_logprobs.logprobs,
                mine.sampled_token_ranks + following.top_logprobs.sampled_token_ranks,
            )
        self.finish_reason = following.finish_reason
        self.stop_reason = following.stop_reason


@dataclass(slots=True)
class RequestMetrics:
    """When what happened, in seconds. Times of day count from the epoch; None: has not happened.

    arrival_time (= request_start_time): the call received the request.
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
    inference_start_time: float | None = None
    first_token_time: float | None = None
    time_in_queue: float | None = None
    model_forward_time: float | None = None
    model_execute_time: float | None = None
    request_start_time: float | None = None
    preprocess_start_time: float | None = None
    preprocess_end_time: float | None = None
    preprocess_cost_time: float | None = None
    scheduler_recv_req_time: float | None = None
    engine_get_req_time: float | None = None
    ask_decode_resource_start_time: float | None = None
    ask_decode_resource_finish_time: float | None = None
    add_req_to_resource_manager_time: float | None = None
    engine_recv_latest_token_time: float | None = None
    engine_recv_first_token_time: float | None = None
    wait_for_sending_cache_time: float | None = None
    send_request_output_to_decode_time: float | None = None
    decode_recv_req_time: float | None = None
    decode_preallocate_req_time: float | None = None
    decode_recv_first_token_time: float | None = None
    decode_inference_start_time: float | None = None
    decode_recv_second_token_time: float | None = None
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

    def __repr__(self) -> str:
        return short_repr(self, given_fields(self))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class RequestOutput:
    """The result of one request, or an increment of it in a stream.

    prompt: what the caller passed to `generate`, or the text `chat` made of the conversation.
    prompt_token_ids: the ids the model read.
    prompt_logprobs: when SamplingParams.prompt_logprobs asks for them; the first is None.
    outputs: the generated text. Of a failed request: empty. outputs and metrics are None only in an
        object that was made without them, never in one that a call returns.
    finished: nothing more will come.
    num_cached_tokens: prompt tokens taken from the prefix cache, swap_space included.
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

    def __post_init__(self) -> None:
        ids = self.prompt_token_ids
        if ids is None:
            self.prompt_token_ids = []
        elif hasattr(ids, "tolist"):
            self.prompt_token_ids = ids.tolist()
        self.prompt_token_ids_len = self.prompt_token_ids_len or len(self.prompt_token_ids)

    def __repr__(self) -> str:
        failure = {"error_code": self.error_code, "error_msg": self.error_msg}
        return short_repr(
            self,
            {
                **({} if self.outputs is None else self.outputs._summary()),
                **(failure if self.error_msg else {}),
            },
        )

    def add(self, following: RequestOutput) -> None:
        """Appends the next increment of a stream."""
        if following.outputs is not None:
            if self.outputs is None:
                self.outputs = CompletionOutput(index=following.outputs.index)
            self.outputs.add(following.outputs)
        self.prompt_logprobs = following.prompt_logprobs or self.prompt_logprobs
        self.finished = following.finished
        self.metrics = following.metrics or self.metrics
        self.num_cached_tokens = following.num_cached_tokens
        self.error_code, self.error_msg = following.error_code, following.error_msg

    accumulate = add

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists all the way down."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RequestOutput:
        """The inverse of to_dict; unknown keys are ignored."""
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        if isinstance(known.get("outputs"), Mapping):
            known["outputs"] = _pick(CompletionOutput, known["outputs"])
        if isinstance(known.get("metrics"), Mapping):
            known["metrics"] = _pick(RequestMetrics, known["metrics"])
        return cls(**known)

    def get(self, key: str, default: Any = None) -> Any:
        """A field of this object, else of its outputs, else of its metrics."""
        for owner in (self, self.outputs, self.metrics):
            if owner is not None and hasattr(owner, key):
                return getattr(owner, key)
        return default

    def set(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __getitem__(self, key: str) -> Any:
        missing = object()
        value = self.get(key, missing)
        if value is missing:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __contains__(self, key: str) -> bool:
        return any(hasattr(owner, key) for owner in (self, self.outputs, self.metrics))


def _pick(cls: type, values: Mapping[str, Any]) -> Any:
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})
