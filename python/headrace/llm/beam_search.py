"""Beam search over the engine's requests, as vLLM does it: a request of one token for each beam and
step, whose prefix the cache holds, and the most likely next tokens from its log-probabilities."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import EngineError
from headrace.llm.outputs import CompletionOutput, Logprob, RequestOutput
from headrace.llm.requests.output_processor import sort_parts
from headrace.llm.requests.planner import RequestPlanner
from headrace.llm.requests.preparation import Job
from headrace.llm.requests.session import describe_error, request_errors
from headrace.media.requests.placing import rows_of
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.parsers.output_plan import ParsedText, Parsing
from headrace.prompts import Prompt, PromptParts
from headrace.quoting import quoted


@dataclass(slots=True)
class BeamSearchSequence:
    """One output of a beam search.

    tokens: the ids of prompt and output. logprobs: for each token of the output, what the engine
    knew of that position, with the token itself. text: of prompt and output.
    finish_reason: "stop" after an end-of-sequence token, which is stop_reason, else "length".
    """

    tokens: list[int]
    logprobs: list[dict[int, Logprob]]
    lora_request: LoRARequest | None = None
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | None = None


@dataclass(slots=True)
class BeamSearchOutput:
    """The outputs of one prompt, best first; error_code and error_msg as of RequestOutput, without
    any output where it isn't 200."""

    sequences: list[BeamSearchSequence]
    error_code: int = 200
    error_msg: str | None = None


@dataclass(slots=True)
class _Beam:
    """An output so far: another one's, and a token more."""

    parent: _Beam | None = None
    token: int = -1
    logprobs: dict[int, Logprob] = field(default_factory=dict)
    total: float = 0.0
    length: int = 0
    ended: bool = False

    def path(self) -> list[_Beam]:
        """Of its tokens, each with what it ends."""
        found: list[_Beam] = []
        beam: _Beam | None = self
        while beam is not None and beam.parent is not None:
            found.append(beam)
            beam = beam.parent
        return found[::-1]

    def tokens(self) -> list[int]:
        return [step.token for step in self.path()]


@dataclass(slots=True)
class _Search:
    """One prompt."""

    prompt: Prompt
    lora: LoRARequest | None
    room: int  # tokens that an output may have
    live: list[_Beam] = field(default_factory=lambda: [_Beam()])
    complete: list[_Beam] = field(default_factory=list)
    error: tuple[int, str | None] = (200, None)


class BeamSearch:
    """A search for several prompts: `add` them; then, while there are `jobs`, run these and `take`
    what they give, in their order. One thread at a time."""

    def __init__(self, planner: RequestPlanner, params: BeamSearchParams) -> None:
        """`planner`: with `beam_planner`'s changes, as what runs the jobs has it."""
        self._planner = planner
        self._params = params
        most = min(2 * params.beam_width, planner.info.vocab_size)
        self._sampling = SamplingParams(
            temperature=float(params.temperature),
            max_tokens=1,
            min_tokens=0,
            logprobs=most,
            ignore_eos=params.ignore_eos,
        )
        self._ends = frozenset[int]()
        if not params.ignore_eos:
            self._ends = planner.end_tokens(self._sampling)
        self._searches: list[_Search | BeamSearchOutput] = []
        self._running: list[tuple[_Search, _Beam]] = []

    def add(self, job: Job) -> None:
        """Reads a prompt. Raises EngineError with raise_on_error."""
        self._searches.append(self._begin(job))

    def jobs(self) -> list[Job]:
        """Of the next step; none: the search has ended."""
        searches = [search for search in self._searches if isinstance(search, _Search)]
        self._running = [(search, beam) for search in searches for beam in search.live]
        return [self._job(search, beam) for search, beam in self._running]

    def take(self, outputs: Sequence[RequestOutput]) -> None:
        found: dict[int, tuple[_Search, list[_Beam]]] = {}
        for (search, beam), output in zip(self._running, outputs, strict=True):
            found.setdefault(id(search), (search, []))[1].extend(self._next(search, beam, output))
        for search, beams in found.values():
            self._keep(search, beams)

    def abort(self) -> None:
        """Ends what is still searched."""
        for search in self._searches:
            if isinstance(search, _Search) and search.live:
                search.live, search.error = [], (200, "Aborted")

    def outputs(self) -> list[BeamSearchOutput]:
        """One for each prompt."""
        return [
            self._finish(search) if isinstance(search, _Search) else search
            for search in self._searches
        ]

    def request_outputs(self, parsing: Parsing) -> list[RequestOutput]:
        """The same as outputs of requests, which `parsing` parses: beam_width for each prompt, or
        one that says what has failed."""
        found: list[RequestOutput] = []
        for search in self._searches:
            if isinstance(search, BeamSearchOutput):
                found.append(_failed(search.error_code, search.error_msg))
            elif search.error != (200, None):
                found.append(_failed(*search.error))
            else:
                best = self._best(search, search.complete)
                found += [
                    self._request_output(search, beam, index, parsing)
                    for index, beam in enumerate(best)
                ]
        return found

    def _begin(self, job: Job) -> _Search | BeamSearchOutput:
        try:
            prompt = job.prompt()
        except request_errors() as error:
            code, message = describe_error(error)
            if self._planner.args.raise_on_error:
                raise EngineError(message, code) from error
            return BeamSearchOutput([], code, message)
        room = self._planner.info.max_model_len - len(prompt.token_ids)
        return _Search(prompt, job.lora, min(self._params.max_tokens, room))

    def _job(self, search: _Search, beam: _Beam) -> Job:
        ids = [*search.prompt.token_ids, *beam.tokens()]
        prompt = replace(search.prompt, token_ids=ids, request_id=None, parts=PromptParts(ids))
        return Job(None, lambda: None, lambda _: prompt, self._sampling, search.lora)

    def _next(self, search: _Search, beam: _Beam, output: RequestOutput) -> list[_Beam]:
        """A beam with each of the likely next tokens."""
        rows = output.outputs.logprobs
        if not rows or output.outputs.finish_reason in ("abort", "error"):
            search.error = (output.error_code, output.error_msg)
            return []
        following: Mapping[int, Logprob] = rows[0]
        return [
            _Beam(
                beam,
                token,
                rows[0],
                beam.total + known.logprob,
                beam.length + 1,
                token in self._ends,
            )
            for token, known in following.items()
        ]

    def _keep(self, search: _Search, found: list[_Beam]) -> None:
        if search.error != (200, None):
            search.live = []
            return
        complete = [*search.complete, *(beam for beam in found if beam.ended)]
        search.complete = self._best(search, complete)
        going_on = [beam for beam in found if not beam.ended]
        search.live = self._best(search, going_on)
        if search.live and search.live[0].length >= search.room:
            search.complete += search.live
            search.live = []

    def _best(self, search: _Search, beams: list[_Beam]) -> list[_Beam]:
        """The best beam_width, best first."""

        def score(beam: _Beam) -> float:
            length = len(search.prompt.token_ids) + beam.length - beam.ended
            return float(beam.total / length**self._params.length_penalty)

        return sorted(beams, key=score, reverse=True)[: self._params.beam_width]

    def _finish(self, search: _Search) -> BeamSearchOutput:
        code, message = search.error
        if code != 200 or message is not None:
            return BeamSearchOutput([], code, message)
        best = self._best(search, search.complete)
        return BeamSearchOutput([self._sequence(search, beam) for beam in best])

    def _sequence(self, search: _Search, beam: _Beam) -> BeamSearchSequence:
        tokens = [*search.prompt.token_ids, *beam.tokens()]
        text, tokenizer = None, self._planner.tokenizer
        if tokenizer is not None:
            silent = beam.ended and not self._params.include_stop_str_in_output
            text = tokenizer.decode(tokens[:-1] if silent else tokens)
        return BeamSearchSequence(
            tokens,
            [step.logprobs for step in beam.path()],
            search.lora,
            beam.total,
            text,
            "stop" if beam.ended else "length",
            tokens[-1] if beam.ended else None,
        )

    def _request_output(
        self, search: _Search, beam: _Beam, index: int, parsing: Parsing
    ) -> RequestOutput:
        prompt, ids = search.prompt, beam.tokens()
        completion = CompletionOutput(
            index=index,
            token_ids=ids,
            logprobs=[step.logprobs for step in beam.path()],
            finish_reason="stop" if beam.ended else "length",
        )
        plan = parsing.plan(prompt.parts, SamplingParams())
        shown = frozenset[str]() if plan is None else plan.parsing.shown
        completion.text = completion.completion_tokens = self._text(search, beam, shown)
        if plan is not None:
            parsed = ParsedText(plan)
            for token_id in ids[:-1] if beam.ended else ids:
                parsed.count(token_id)
            sort_parts(completion, parsed, last=True)
        return RequestOutput(
            request_id="",
            prompt=prompt.shown,
            prompt_token_ids=prompt.token_ids,
            outputs=completion,
            finished=True,
            num_input_image_tokens=rows_of(prompt.media, "image"),
            num_input_video_tokens=rows_of(prompt.media, "video"),
        )

    def _text(self, search: _Search, beam: _Beam, shown: frozenset[str]) -> str:
        """Of the output alone: where it goes on from the prompt's, with a space at its start."""
        tokenizer = self._planner.tokenizer
        if tokenizer is None:
            return ""
        ids = beam.tokens()
        if beam.ended and not self._params.include_stop_str_in_output:
            ids.pop()
        opens = search.prompt.parts.opens_answer
        after = () if opens else search.prompt.token_ids
        text = tokenizer.detokenizer(True, shown, after)
        return "".join([*map(text.push, ids), text.finish()])


def _failed(code: int, message: str | None) -> RequestOutput:
    reason = "abort" if code == 200 else "error"
    return RequestOutput(
        request_id="",
        outputs=CompletionOutput(completion_tokens="", finish_reason=reason),
        finished=True,
        error_code=code,
        error_msg=message,
    )


def check_beam_params(params: object) -> None:
    """Raises TypeError."""
    if not isinstance(params, BeamSearchParams):
        raise TypeError(f"params must be a BeamSearchParams, got {quoted(params)}")


def beam_planner(planner: RequestPlanner) -> RequestPlanner:
    """One whose requests get raw log-probabilities, as many as there are, and are parsed by
    nothing; the model's defaults of sampling don't count."""
    args: Any = copy.copy(planner.args)
    for name, value in {
        "enable_logprob": True,
        "max_logprobs": -1,
        "logprobs_mode": "raw_logprobs",
    }.items():
        object.__setattr__(args, name, value)  # not replace(), which warns of the caller's again
    plain = Parsing(None, None, planner.tokenizer)
    return replace(planner, args=args, defaults={}, parsing=plain)
