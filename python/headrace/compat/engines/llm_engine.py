"""vLLM's LLMEngine: requests are added, and a script steps until they have finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.compat.engines.arguments import cumulative, engine_keywords
from headrace.llm.llm import LLM
from headrace.llm.offline import OutputStream
from headrace.llm.outputs import RequestOutput, link_outputs
from headrace.options.arg_checks import warn_caller
from headrace.options.engine_args import EngineArgs
from headrace.options.lora import LoRARequest
from headrace.options.output_kind import RequestOutputKind
from headrace.options.sampling_params import SamplingParams
from headrace.quoting import quoted


class LLMEngine:
    """An LLM whose requests run by themselves, and are told of by `step`."""

    def __init__(self, llm: LLM) -> None:
        """Owns `llm`."""
        self.llm = llm
        self._running: dict[str, _Running] = {}

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **others: Any) -> LLMEngine:
        """With log-probabilities for requests that ask for them. Warns of vLLM's other arguments,
        and raises TypeError for those that it doesn't have."""
        return cls(LLM(**engine_keywords(engine_args, others)))

    def add_request(
        self,
        request_id: str,
        prompt: str | Mapping[str, Any] | Sequence[int],
        params: SamplingParams,
        *,
        lora_request: LoRARequest | None = None,
    ) -> None:
        """Starts a request. Raises ValueError for an id that is in use."""
        if request_id in self._running:
            raise ValueError(f"request_id {quoted(request_id)} is in use")
        chosen = cumulative(params)
        stream = self.llm.generate(prompt, chosen, stream=True, lora_request=lora_request)
        self._running[request_id] = _Running(request_id, stream, chosen)

    def step(self) -> list[RequestOutput]:
        """Waits for news of each request: one RequestOutput whose `outputs` are its n. It has what
        SamplingParams.output_kind says; by default everything so far."""
        news = [running.advanced() for running in list(self._running.values())]
        self._running = {name: one for name, one in self._running.items() if not one.finished}
        return [output for output in news if output is not None]

    def has_unfinished_requests(self) -> bool:
        return bool(self._running)

    def get_num_unfinished_requests(self) -> int:
        return len(self._running)

    def abort_request(self, request_ids: str | Sequence[str]) -> None:
        """Ends requests, of which `step` tells nothing more. Unknown ids are ignored."""
        for name in [request_ids] if isinstance(request_ids, str) else request_ids:
            running = self._running.pop(name, None)
            if running is not None:
                running.stream.close()

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Running requests keep what they have computed; warns if they shouldn't."""
        if reset_running_requests and self._running:
            warn_caller(
                "reset_running_requests=True has no effect: running requests keep what they have "
                "computed"
            )
        return self.llm.reset_prefix_cache()


class _Running:
    """One request."""

    def __init__(self, request_id: str, stream: OutputStream, params: SamplingParams) -> None:
        self.stream = stream
        self.finished = False
        self._request_id = request_id
        self._kind = params.output_kind
        self._ended = [False] * params.n
        self._outputs: list[RequestOutput | None] = [None] * params.n

    def advanced(self) -> RequestOutput | None:
        """After the next update; None if there is nothing to tell."""
        news = next(self.stream, None)
        for place, update in enumerate(news or ()):
            if update is not None:
                self._outputs[place] = update
                self._ended[place] = update.finished
            elif self._kind is RequestOutputKind.DELTA:
                self._outputs[place] = None
        self.finished = news is None or all(self._ended)
        told = [output for output in self._outputs if output is not None]
        if not told or (self._kind is RequestOutputKind.FINAL_ONLY and not self.finished):
            return None
        link_outputs(told, [len(told)])
        first = told[0]
        first.request_id, first.finished = self._request_id, self.finished
        return first
