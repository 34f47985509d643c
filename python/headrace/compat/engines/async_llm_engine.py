"""vLLM's AsyncLLM, which was AsyncLLMEngine: updates with everything so far, by default."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from headrace.compat.engines.arguments import check_left_out, cumulative, engine_keywords
from headrace.errors import EngineError
from headrace.llm.async_llm import AsyncLLM
from headrace.llm.async_stream import OutputUpdates
from headrace.llm.outputs import RequestOutput, link_outputs
from headrace.native import HeadraceError
from headrace.options.arg_checks import warn_caller
from headrace.options.engine_args import EngineArgs
from headrace.options.lora import LoRARequest
from headrace.options.output_kind import RequestOutputKind
from headrace.options.sampling_params import SamplingParams
from headrace.text.tokenizer import Tokenizer

# vLLM's further arguments of generate, and what each would need.
_MISSING = {
    "tokenization_kwargs": "such choices (SamplingParams has truncate_prompt_tokens)",
    "trace_headers": "traces for OpenTelemetry",
    "priority": "priorities of requests here (headrace.Engine.submit has)",
    "data_parallel_rank": "a choice of the replica (the engine chooses it)",
    "session_id": "sessions (the prefix cache finds what prompts share)",
    "reasoning_ended": "this argument (the prompt tells whether thinking has begun)",
    "reasoning_parser_kwargs": "arguments of reasoning parsers",
}


class AsyncLLMEngine:
    """An AsyncLLM by vLLM's methods. What can't be served raises EngineError."""

    def __init__(self, llm: AsyncLLM) -> None:
        """Owns `llm`."""
        self.llm = llm

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **others: Any) -> AsyncLLMEngine:
        """Loads the model while the caller waits. The rest as LLMEngine.from_engine_args."""
        given = engine_keywords(engine_args, others)
        return cls(AsyncLLM(**{**given, "raise_on_error": True}))

    async def generate(
        self,
        prompt: str | Mapping[str, Any] | Sequence[int],
        sampling_params: SamplingParams,
        request_id: str,
        *,
        prompt_text: str | None = None,
        lora_request: LoRARequest | None = None,
        **others: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The updates of a request. Each has, as SamplingParams.output_kind says, everything so
        far (the default) or what is new of one output; with FINAL_ONLY there is one update, whose
        `outputs` are all n. The last has finished=True. Leaving the loop cancels the request.

        prompt_text: no effect: the text is the prompt's. others: further arguments of vLLM's, which
        are refused by name.
        """
        check_left_out(others, _MISSING)
        if prompt_text is not None:
            warn_caller("prompt_text has no effect: RequestOutput.prompt is the prompt's own text")
        params = cumulative(sampling_params)
        updates = self.llm.generate(
            prompt, params, lora_request=lora_request, request_id=request_id
        )
        async with updates:
            if params.output_kind is RequestOutputKind.FINAL_ONLY:
                yield await _whole(updates)
                return
            running = params.n
            async for update in updates:
                running -= update.finished
                update.request_id, update.finished = request_id, not running
                yield update

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests, which finish with what they have. Unknown ids are ignored."""
        self.llm.abort(request_id if isinstance(request_id, str) else list(request_id))

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None if its folder has none."""
        return self.llm.get_tokenizer()

    async def reset_prefix_cache(self) -> bool:
        """Forgets the KV blocks of finished requests. Always True."""
        self.llm.clear_prefix_cache()
        return True

    @property
    def dead_error(self) -> EngineError:
        """What check_health raises."""
        return EngineError("the engine takes no requests: it has failed, or was shut down", 500)

    @property
    def errored(self) -> bool:
        """Whether it takes no requests any more."""
        try:
            return not self.llm.stats().running_replicas
        except HeadraceError:
            return True

    @property
    def is_running(self) -> bool:
        return not self.errored

    @property
    def is_stopped(self) -> bool:
        return self.errored

    async def check_health(self) -> None:
        """Raises EngineError if it takes no requests any more."""
        if self.errored:
            raise self.dead_error

    def shutdown(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent; later calls fail."""
        self.llm.shutdown()


async def _whole(updates: OutputUpdates) -> RequestOutput:
    """The outputs of a request as one: `outputs` has all."""
    done = await updates.results()
    link_outputs(done, [len(done)])
    done[0].request_id = updates.request_id
    return done[0]
