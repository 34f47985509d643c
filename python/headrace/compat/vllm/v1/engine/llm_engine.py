"""vLLM's LLMEngine: requests are added, and a script steps until they have finished."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from headrace.llm.llm import LLM
from headrace.llm.offline import OutputStream
from headrace.llm.outputs import RequestOutput, link_outputs
from headrace.options.engine_args import EngineArgs
from headrace.options.lora import LoRARequest
from headrace.options.sampling_params import SamplingParams
from headrace.quoting import quoted

_NO_EFFECT = {
    "usage_context": "nothing is reported about usage",
    "stat_loggers": "LLM.stats tells the numbers",
    "enable_multiprocessing": "the engine runs in threads of this process",
}


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
        for name, value in others.items():
            if name not in _NO_EFFECT:
                raise TypeError(f"from_engine_args has no argument {quoted(name)}")
            if value:
                reason = _NO_EFFECT[name]
                warnings.warn(f"{name}={quoted(value)} has no effect: {reason}", stacklevel=2)
        given = {item.name: getattr(engine_args, item.name) for item in fields(engine_args)}
        return cls(LLM(**{**given, "enable_logprob": True}))

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
        stream = self.llm.generate(prompt, params, stream=True, lora_request=lora_request)
        self._running[request_id] = _Running(request_id, stream)

    def step(self) -> list[RequestOutput]:
        """Waits for news of each request: its outputs so far, one RequestOutput whose `outputs`
        are its n. It grows with the next steps."""
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
            warnings.warn(
                "reset_running_requests=True has no effect: running requests keep what they have "
                "computed",
                stacklevel=2,
            )
        return self.llm.reset_prefix_cache()


class _Running:
    """One request."""

    def __init__(self, request_id: str, stream: OutputStream) -> None:
        self.stream = stream
        self.finished = False
        self._request_id = request_id
        self._outputs: list[RequestOutput | None] = []

    def advanced(self) -> RequestOutput | None:
        """After the next increment; None if there is nothing of it."""
        news = next(self.stream, None)
        if news is None:
            self.finished = True
        self._outputs = self._outputs or [None] * len(news or ())
        for place, update in enumerate(news or ()):
            mine = self._outputs[place]
            if mine is None or update is None:
                self._outputs[place] = mine or update
            else:
                mine.accumulate(update)
        known = [output for output in self._outputs if output is not None]
        self.finished = self.finished or all(
            output is not None and output.finished for output in self._outputs
        )
        if not known:
            return None
        link_outputs(known, [len(known)])
        first = known[0]
        first.request_id, first.finished = self._request_id, self.finished
        return first
