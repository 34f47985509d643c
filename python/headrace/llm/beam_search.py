"""Beam search over the engine's requests, as vLLM does it: a request of one token for each beam and
step, whose prefix the cache holds, and the most likely next tokens from its log-probabilities."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import EngineError
from headrace.llm.outputs import Logprob, RequestOutput
from headrace.llm.requests.planner import RequestPlanner
from headrace.llm.requests.preparation import Job
from headrace.llm.requests.session import describe_error, request_errors
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.parsers.output_plan import Parsing
from headrace.prompts import Prompt, PromptParts


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


# Of jobs, the finished outputs in order.
Run = Callable[[list[Job]], list[RequestOutput]]


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
    """A call of LLM.beam_search."""

    def __init__(self, planner: RequestPlanner, params: BeamSearchParams, run: Run) -> None:
        """`planner`: LLM's, with `beam_planner`'s changes, as `run` has it."""
        self._planner = planner
        self._params = params
        self._run = run
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

    def run(self, jobs: Sequence[Job]) -> list[BeamSearchOutput]:
        """One for each prompt. Raises EngineError with raise_on_error."""
        searches = [self._begin(job) for job in jobs]
        while running := [search for search in searches if isinstance(search, _Search)]:
            running = [search for search in running if search.live]
            if not running:
                break
            steps = [(search, beam) for search in running for beam in search.live]
            outputs = self._run([self._job(search, beam) for search, beam in steps])
            found: dict[int, list[_Beam]] = {id(search): [] for search in running}
            for (search, beam), output in zip(steps, outputs, strict=True):
                found[id(search)] += self._next(search, beam, output)
            for search in running:
                self._keep(search, found[id(search)])
        return [
            self._finish(search) if isinstance(search, _Search) else search for search in searches
        ]

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
        if not rows:  # it has failed, or was aborted
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
