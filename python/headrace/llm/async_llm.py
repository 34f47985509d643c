"""The same for coroutines: thousands of requests on one event loop, without a thread for each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from headrace.llm.async_stream import AsyncRunner, OutputUpdates
from headrace.llm.base import BaseLLM, sampling_list
from headrace.llm.beam_request import BeamSearchRequest
from headrace.llm.beam_search import check_beam_params
from headrace.llm.pooling.calls import EmbedCall, ScoreCall
from headrace.llm.pooling.outputs import EmbeddingRequestOutput, ScoringRequestOutput
from headrace.llm.requests.planner import check_shared
from headrace.llm.requests.preparation import Job
from headrace.options.lora import LoRARequest, lora_list
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.prompts import conversation_list, prompt_list
from headrace.quoting import checked_text

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L", bound="AsyncLLM")

Prompt = str | Mapping[str, Any] | Sequence[int]
Conversation = Sequence[Mapping[str, Any]]


class AsyncLLM(BaseLLM):
    """LLM for coroutines.

        async with AsyncLLM.load("path/to/model") as llm:
            async for update in llm.chat([{"role": "user", "content": "Hello!"}]):
                print(update.outputs.text, end="")
            answer = await llm.chat([{"role": "user", "content": "Hello!"}]).result()

    The arguments are LLM's. The constructor loads the model while the caller waits; `load` does it
    on a thread. A call has one prompt or one conversation; run many by asyncio.gather or a task for
    each: they share the steps of the engine. Any thread and any event loop may call any method.

    Errors are LLM's: what is wrong with the call raises; a prompt that can't be served ends with
    an update that has an error_code other than 200, or with `raise_on_error=True` as EngineError.
    """

    def _loaded(self) -> None:
        self._runner = AsyncRunner(self._session, self._planner, self._registry)

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | None = None,
        request_id: str | None = None,
    ) -> OutputUpdates:
        """Continues a prompt as it stands: a str, token ids, or a dict as in LLM.generate.

        request_id: for `abort` and messages; default: a new one. The rest as in LLM.generate.
        """
        params = self._params(sampling_params)
        job = self._prompt_job(
            _only(prompt_list(prompt), "prompt"), params, self._lora(lora_request)
        )
        return self._start(job, request_id)

    def chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Any = None,
        tool_choice: Any = None,
        lora_request: LoRARequest | None = None,
        request_id: str | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> OutputUpdates:
        """Answers a conversation, a list of {"role", "content"} dicts. The rest as in LLM.chat."""
        params = self._params(sampling_params)
        options = self._chat_options(
            chat_template, chat_template_kwargs, tools, tool_choice, mm_processor_kwargs
        )
        item = _only(conversation_list(messages), "conversation")
        job = self._chat_job(item, options, params, self._lora(lora_request))
        return self._start(job, request_id)

    def beam_search(
        self,
        prompt: Prompt,
        params: BeamSearchParams,
        *,
        lora_request: LoRARequest | None = None,
        request_id: str | None = None,
    ) -> BeamSearchRequest:
        """`await` it for what LLM.beam_search gives for the prompt, which may also be a dict with
        "messages", as in LLM.generate. request_id: for `abort`."""
        check_beam_params(params)
        item = _only(prompt_list(prompt), "prompt")
        job = self._prompt_job(item, self.default_sampling_params, self._lora(lora_request))
        self._check_open()
        self._runner.check_process()
        name = checked_text(request_id or str(uuid.uuid4()), "request_id")
        return BeamSearchRequest(self._runner, job, params, name)

    async def embed(
        self,
        prompts: Any,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of one input or of several, in their order. As LLM.embed."""
        call = EmbedCall(
            self._pooling_planner(),
            prompts,
            prompt_name=prompt_name,
            prompt=prompt,
            dimensions=dimensions,
            normalize=normalize,
            truncate_prompt_tokens=truncate_prompt_tokens,
        )
        self._runner.check_process()
        results = await self._pooled_call(call.jobs, lora_request).run_async(self._runner)
        return call.finish(results)

    async def score(
        self,
        query: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[ScoringRequestOutput]:
        """How well each document answers the query. As LLM.score."""
        call = ScoreCall(
            self._pooling_planner(), query, documents, instruction, truncate_prompt_tokens
        )
        self._runner.check_process()
        results = await self._pooled_call(call.jobs, lora_request).run_async(self._runner)
        return call.finish(results)

    def abort(self, request_id: str | Sequence[str] | None = None) -> None:
        """Ends requests, from any thread; they finish with what they have.

        request_id: one id or several (unknown ones are ignored), each of a request or, with n > 1,
            of one of its outputs; None: all.
        """
        streams = self._runner.streams()
        ids = [request_id] if isinstance(request_id, str) else request_id
        for name in streams if ids is None else ids:
            if name in streams:
                streams[name].abort()
        self._registry.cancel(ids)

    async def close(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent; later calls fail."""
        self._end_calls()
        if self._runner.is_forked:  # without threads and without a loop
            self._session.close()
        else:
            await asyncio.to_thread(self._session.close)

    def shutdown(self) -> None:
        """`close`, while the caller waits."""
        self._end_calls()
        self._session.close()

    def _end_calls(self) -> None:
        self._end_media()
        if not self._runner.is_forked:
            self._runner.shut_down()

    async def __aenter__(self: L) -> L:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @classmethod
    def load(cls: Callable[P, L], *args: P.args, **kwargs: P.kwargs) -> AsyncLoad[L]:
        """Loads a model on a thread: `llm = await AsyncLLM.load(...)`, or `async with` to have it
        closed at the end. The arguments are the constructor's. Cancelling it ends the load."""
        kind: Any = cls
        llm = kind.__new__(kind)
        return AsyncLoad(llm, partial(kind.__init__, llm, *args, **kwargs))

    def _params(self, params: SamplingParams | None) -> SamplingParams:
        if params is None:
            return self.default_sampling_params
        chosen = _only(sampling_list(params), "SamplingParams")
        check_shared(chosen, self.args, self.model_info.vocab_size)
        return chosen

    def _lora(self, lora: LoRARequest | None) -> LoRARequest | None:
        return lora_list(lora, 1, self.args.enable_lora)[0]

    def _start(self, job: Job, request_id: str | None) -> OutputUpdates:
        self._check_open()
        self._runner.check_process()
        own = job.original.get("request_id") if isinstance(job.original, Mapping) else None
        name = str(uuid.uuid4() if request_id is None and own is None else request_id or own)
        job.request_id = checked_text(name, "request_id")
        return OutputUpdates(self._runner, job, name)


class AsyncLoad(Generic[L]):
    """A model being loaded: to be awaited, or entered by `async with`."""

    def __init__(self, llm: L, load: Callable[[], None]) -> None:
        """`load`: calls the constructor of `llm`."""
        self._llm = llm
        self._load = load

    def __await__(self) -> Generator[Any, None, L]:
        return self._run().__await__()

    async def _run(self) -> L:
        thread = asyncio.get_running_loop().run_in_executor(None, self._load)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._llm._end_load()
            thread.add_done_callback(_forget)
            raise
        return self._llm

    async def __aenter__(self) -> L:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self._llm.close()


def _forget(thread: asyncio.Future[None]) -> None:
    """What a load that nobody waits for any more has raised."""
    if not thread.cancelled():
        thread.exception()


def _only(items: list[T], what: str) -> T:
    if len(items) != 1:
        raise ValueError(f"one {what} a call, got {len(items)}: make a call for each")
    return items[0]
