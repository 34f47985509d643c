"""A request in flight: takes the engine's outputs, gives the caller's."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headrace import native
from headrace.errors import TokenizerError
from headrace.llm.outputs import (
    CompletionOutput,
    Logprob,
    LogprobsLists,
    PromptLogprobs,
    RequestMetrics,
    RequestOutput,
)
from headrace.llm.requests.planner import RequestPlanner, stop_tokens
from headrace.llm.requests.preparation import PreparedRequest, RequestFacts
from headrace.llm.requests.session import describe_error, http_code
from headrace.options.sampling_params import SamplingParams
from headrace.parsers.output_plan import ParsedText
from headrace.text.output_text import Detokenizer, OutputText, StopStrings
from headrace.text.tokenizer import Tokenizer


@dataclass(slots=True)
class GeneratedToken:
    """An id with its log-probabilities, if asked for."""

    id: int
    logprobs: native.PositionLogprobs | None = None


class OutputProcessor:
    """One output being generated. Not thread safe: belongs to the call that made it."""

    def __init__(
        self, request: PreparedRequest, handle: native.Request, planner: RequestPlanner
    ) -> None:
        """`handle`: what submitting `request` gave."""
        self.facts = request.facts
        self.handle = handle
        self.queue = handle.results()
        self._tokenizer = planner.tokenizer
        # The ids that end this output: kept in its ids, and out of its text.
        self._end_tokens = planner.end_tokens(request.facts.params)
        plan = request.parsing
        self._parsed = None if plan is None else ParsedText(plan)
        shown = frozenset[str]() if plan is None else plan.parsing.shown
        # What a grammar describes is a text of its own, as a chat's answer is.
        continues = request.continues and request.constraint is None
        after = request.facts.prompt_token_ids if continues else ()
        # Not yet taken:
        self._tokens: deque[GeneratedToken] = deque()
        self._pieces: list[str] = []
        self._called = False  # a function
        self._prompt_logprobs: PromptLogprobs | None = None
        self._sent = 0  # tokens in the increments taken
        self._finish_reason: str | None = None
        self._stop_reason: int | str | list[int] | None = None
        self._error: tuple[int, str | None] = (200, None)
        self.generated = 0
        self.computed_prompt_tokens = 0  # known from the first generated token on
        self.released = False  # the engine has let go of it
        try:
            self._text = output_text(
                planner.tokenizer, request.facts.params, request.stops, shown, after
            )
        except TokenizerError as error:
            self._text = OutputText(Detokenizer())
            self._fail(error)

    @property
    def finished(self) -> bool:
        """The output is complete (the engine may still have to let go of the request)."""
        return self._finish_reason is not None

    @property
    def failed(self) -> bool:
        return self._finish_reason == "error"

    def drain(self) -> None:
        """Takes all that the engine has for it."""
        while not self.released and (output := self.queue.get_nowait()) is not None:
            self._absorb(output)

    def _absorb(self, output: native.Output) -> None:
        self.released = output.finished
        if self.finished:
            return
        if output.prompt_logprobs:
            self._prompt_logprobs = [None, *map(self._logprob_dict, output.prompt_logprobs)]
        if output.token_ids and not self.generated:
            stats = self.queue.stats()
            self.computed_prompt_tokens = stats.prompt_tokens - stats.cached_tokens
        try:
            self._absorb_text(output)
        except native.HeadraceError as error:  # a decoder takes too long
            self._fail(error)

    def _absorb_text(self, output: native.Output) -> None:
        full = False  # response_max_tokens is reached
        keeps_ending = self.facts.params.include_stop_str_in_output
        for place, token_id in enumerate(output.token_ids):
            logprobs = output.logprobs[place] if output.logprobs else None
            has_text = keeps_ending or token_id not in self._end_tokens
            self.generated += 1
            self._tokens.append(GeneratedToken(token_id, logprobs))
            self._pieces.append(self._text.push(token_id, has_text))
            if self._parsed is not None and token_id not in self._end_tokens:
                full = self._parsed.count(token_id)
            if full or self._text.match is not None:
                break
        if full or output.finished:
            self._pieces.append(self._text.finish())
        if self._text.match is not None:
            self._finish_reason, self._stop_reason = "stop", self._text.match.string
            self.handle.cancel()
        elif full:  # whatever came right behind it
            self._finish_reason = "length"
            self.handle.cancel()
        elif output.finished:
            self._end(output)

    def take(self) -> RequestOutput | None:
        """What is new since the last call; None if nothing is."""
        tokens = [self._tokens.popleft() for _ in range(self._text.released - self._sent)]
        text, self._pieces = "".join(self._pieces), []
        if not (tokens or text or self.finished):
            return None
        stats = self.queue.stats()
        first = self._sent == 0
        completion = CompletionOutput(
            index=self.facts.index,
            send_idx=self._sent,
            token_ids=[token.id for token in tokens],
            text=text,
            completion_tokens=text,
            finish_reason=self._finish_reason,
            stop_reason=self._stop_reason,
            seed=self.facts.seed,
        )
        if self._parsed is not None:
            self._parse(completion, self._parsed)
        if self.facts.params.logprobs is not None:
            self._add_logprobs(completion, tokens)
        self._sent += len(tokens)
        return RequestOutput(
            request_id=self.facts.request_id,
            prompt=self.facts.prompt,
            prompt_token_ids=self.facts.prompt_token_ids,
            prompt_logprobs=self._prompt_logprobs if first else None,
            outputs=completion,
            finished=self.finished,
            metrics=_metrics(self.facts, stats),
            num_cached_tokens=stats.cached_tokens,
            num_input_image_tokens=self.facts.image_tokens,
            num_input_video_tokens=self.facts.video_tokens,
            error_code=self._error[0],
            error_msg=self._error[1],
        )

    def _parse(self, completion: CompletionOutput, parsed: ParsedText) -> None:
        sort_parts(completion, parsed, last=self.finished)
        self._called = self._called or bool(completion.tool_calls)
        if self._called and self._finish_reason == "stop":
            completion.finish_reason = "tool_calls"

    def _fail(self, error: Exception) -> None:
        """There is no text for it."""
        self._finish_reason, self._error = "error", describe_error(error)
        self.handle.cancel()

    def _end(self, output: native.Output) -> None:
        self._finish_reason = output.finish_reason.name.lower()
        params = self.facts.params
        if self._finish_reason == "error":
            self._error = (http_code(output.error_code), output.error_message)
        elif self._finish_reason == "abort":
            self._error = (200, "Aborted")
        elif self._finish_reason == "stop":
            tokens, sequences = stop_tokens(params)
            if output.stop_sequence >= 0:
                self._stop_reason = sequences[output.stop_sequence]
            elif output.stop_token in tokens:
                self._stop_reason = output.stop_token

    def _logprob_dict(self, position: native.PositionLogprobs) -> dict[int, Logprob]:
        """The token itself, then the best ones by rank."""
        entries = {
            position.token: Logprob(position.logprob, position.rank, self._show(position.token))
        }
        for rank, (token_id, logprob) in enumerate(position.top, start=1):
            if token_id not in entries:
                entries[token_id] = Logprob(logprob, rank, self._show(token_id))
        return entries

    def _show(self, token_id: int) -> str | None:
        try:
            return None if self._tokenizer is None else self._tokenizer.token_text(token_id)
        except TokenizerError:  # it would take too long
            return None

    def _add_logprobs(self, completion: CompletionOutput, tokens: list[GeneratedToken]) -> None:
        positions = [token.logprobs for token in tokens if token.logprobs is not None]
        completion.logprobs = [self._logprob_dict(position) for position in positions]
        completion.top_logprobs = LogprobsLists(
            [[p.token, *(token_id for token_id, _ in p.top)] for p in positions],
            [[p.logprob, *(logprob for _, logprob in p.top)] for p in positions],
            [p.rank for p in positions],
        )
        completion.logprob = positions[-1].logprob if positions else None


def sort_parts(completion: CompletionOutput, parsed: ParsedText, last: bool) -> None:
    """Sorts an increment's text into content, reasoning and calls."""
    parts = parsed.push(completion.text, last)
    completion.text = parts.content
    completion.reasoning_content = parts.reasoning or None
    completion.tool_calls = list(parts.tool_calls) or None
    completion.reasoning_token_num = parsed.reasoning_tokens


def output_text(
    tokenizer: Tokenizer | None,
    params: SamplingParams,
    stops: StopStrings | None,
    shown: frozenset[str],
    after: Sequence[int],
) -> OutputText:
    """`stops`: of params.stop. shown, after: as in Tokenizer.detokenizer."""
    if tokenizer is None:
        return OutputText(Detokenizer())
    return OutputText(
        tokenizer.detokenizer(params.skip_special_tokens, shown, after),
        stops,
        min_tokens=params.min_tokens,
        keeps_string=params.include_stop_str_in_output,
    )


def failed_output(facts: RequestFacts, code: int, message: str) -> RequestOutput:
    """The result of a request that never reached the engine."""
    return RequestOutput(
        request_id=facts.request_id,
        prompt=facts.prompt,
        prompt_token_ids=facts.prompt_token_ids,
        outputs=CompletionOutput(index=facts.index, completion_tokens="", finish_reason="error"),
        finished=True,
        metrics=RequestMetrics(
            arrival_time=facts.arrival_time,
            request_start_time=facts.arrival_time,
            preprocess_start_time=facts.preprocess_start_time,
            prompt_token_ids_len=len(facts.prompt_token_ids),
        ),
        error_code=code,
        error_msg=message,
    )


def _metrics(facts: RequestFacts, stats: native.RequestStats) -> RequestMetrics:
    """In `stats`, 0 means that it has not happened."""
    started = stats.first_scheduled_time or None
    first = stats.first_token_time or None
    last = stats.last_token_time or None

    def between(begin: float | None, end: float | None) -> float | None:
        return None if begin is None or end is None else end - begin

    return RequestMetrics(
        arrival_time=facts.arrival_time,
        request_start_time=facts.arrival_time,
        preprocess_start_time=facts.preprocess_start_time,
        preprocess_end_time=facts.preprocess_end_time,
        preprocess_cost_time=between(facts.preprocess_start_time, facts.preprocess_end_time),
        scheduler_recv_req_time=stats.arrival_time,
        engine_get_req_time=stats.arrival_time,
        llm_engine_recv_req_timestamp=stats.arrival_time,
        add_req_to_resource_manager_time=started,
        inference_start_time=started,
        llm_engine_send_req_to_engine_timestamp=started,
        time_in_queue=between(facts.preprocess_end_time, started),
        first_token_time=between(started, first),
        engine_recv_first_token_time=first,
        llm_engine_recv_token_timestamp=first,
        engine_recv_latest_token_time=last,
        llm_engine_recv_latest_token_timestamp=last,
        model_forward_time=between(started, last),
        model_execute_time=between(facts.arrival_time, last),
        prompt_token_ids_len=stats.prompt_tokens,
        gpu_cache_token_num=stats.cached_tokens - stats.host_cached_tokens,
        cpu_cache_token_num=stats.host_cached_tokens,
        preempted_count=stats.preemptions,
    )
