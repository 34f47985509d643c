"""The offline interface: load a model, generate, chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, overload

from headrace.errors import UnsupportedError
from headrace.llm.base import BaseLLM, Params, sampling_list
from headrace.llm.beam_search import BeamSearch, BeamSearchOutput, beam_planner, check_beam_params
from headrace.llm.offline import OutputStream, run_to_end
from headrace.llm.output_kinds import OutputKinds
from headrace.llm.outputs import RequestOutput, link_outputs
from headrace.llm.pooling.calls import EmbedCall, ScoreCall
from headrace.llm.pooling.outputs import EmbeddingRequestOutput, ScoringRequestOutput
from headrace.llm.pooling.plan import PoolingJob
from headrace.llm.pooling.run import PooledResult
from headrace.llm.progress import Progress
from headrace.llm.requests.constraints import Constraints
from headrace.llm.requests.group import RequestGroup
from headrace.llm.requests.planner import check_shared
from headrace.llm.requests.preparation import Job
from headrace.options.lora import LoRARequest, LoRARequests, lora_list
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.prompts import conversation_list, prompt_list
from headrace.quoting import quoted

Prompts = (
    str
    | Mapping[str, Any]
    | Sequence[str]
    | Sequence[int]
    | Sequence[Sequence[int]]
    | Sequence[Mapping[str, Any]]
)
Messages = Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]]


class LLM(BaseLLM):
    """A model, loaded and ready.

        with LLM("path/to/model") as llm:
            for output in llm.chat([{"role": "user", "content": "Hello!"}]):
                print(output.outputs.text)

    model: a folder as published on Hugging Face, or the id of a model on the hub.
    revision: branch, tag or commit on the hub; "master" is the default branch.
    tokenizer: a folder or hub id to take the tokenizer from; default: the model's.
    enable_logprob: allow requests to ask for log-probabilities.
    chat_template: a template, or the path of one, instead of the model's own.
    The other keywords: see EngineArgs. An unknown one is a TypeError that names the nearest known
        one; one without meaning here warns.

    Any thread may call any method, also while another call runs: all requests share the steps of
    one engine. `close()` (or leaving the `with` block, or the end of the program) cancels what
    runs and gives the memory back.

    A request that can't be served (a prompt too long, a template that refuses the conversation)
    costs the others of its call nothing: its RequestOutput has an error_code other than 200, an
    error_msg, and finish_reason "error". With `raise_on_error=True` it raises EngineError instead
    and cancels its call. What is wrong with a call as a whole (types, lengths, sampling parameters
    that no prompt could be served with) always raises, before anything runs.
    """

    @overload
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = ...,
        use_tqdm: bool | None = ...,
        stream: Literal[False] = ...,
        lora_request: LoRARequests = ...,
    ) -> list[RequestOutput]: ...

    @overload
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = ...,
        use_tqdm: bool | None = ...,
        *,
        stream: Literal[True],
        lora_request: LoRARequests = ...,
    ) -> OutputStream: ...

    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        use_tqdm: bool | None = None,
        stream: bool = False,
        lora_request: LoRARequests = None,
    ) -> list[RequestOutput] | OutputStream:
        """Continues each prompt as it stands: no template, no special tokens added.

        prompts: a str, a list of str, one prompt's ids as list[int], several as list[list[int]],
            or dicts with "prompt" (text) or "prompt_token_ids" (which wins) or "messages", and
            optionally "add_special_tokens", "completion_token_ids" (ids the output goes on from),
            "bad_words", "request_id". Of vision models also "multimodal_data" (FastDeploy's) or
            "multi_modal_data" (vLLM's), {"image": [...], "video": [...]}, for the marks in the
            prompt, and "mm_processor_kwargs" (docs/media.md).
        sampling_params: one for all prompts, or a list with one for each; default: the model's,
            with a fresh seed for each prompt.
        use_tqdm: show a progress bar on stderr; None: unless it is a stream.
        stream: return an iterator of increments. Each item is a list with one entry per output,
            None where nothing is new. The texts of an output's increments, joined, are its text.
            SamplingParams.output_kind asks for the outputs so far, or for whole ones.
        lora_request: the adapter to answer with, one for all prompts or a list with one or None
            for each; needs enable_lora. One that can't be loaded fails its own prompts.

        Returns one RequestOutput per prompt in the order of the prompts; with
        `SamplingParams(n=...)`, n in a row for each. `outputs` of each is its text, and as a list
        all n of its prompt: `outputs[0].text`.
        """
        items = prompt_list(prompts)
        constraints = Constraints(self._planner)
        params = self._params_list(sampling_params, len(items), "prompts", constraints)
        loras = lora_list(lora_request, len(items), self.args.enable_lora)
        jobs = [
            self._prompt_job(item, own, lora)
            for item, own, lora in zip(items, params, loras, strict=True)
        ]
        return self._run(jobs, constraints, use_tqdm, stream)

    @overload
    def chat(
        self,
        messages: Messages,
        sampling_params: Params = ...,
        use_tqdm: bool | None = ...,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        chat_template: str | None = ...,
        tools: Any = ...,
        stream: Literal[False] = ...,
        lora_request: LoRARequests = ...,
        tool_choice: Any = ...,
        mm_processor_kwargs: Mapping[str, Any] | None = ...,
        *,
        add_generation_prompt: bool | None = ...,
        continue_final_message: bool = ...,
    ) -> list[RequestOutput]: ...

    @overload
    def chat(
        self,
        messages: Messages,
        sampling_params: Params = ...,
        use_tqdm: bool | None = ...,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        chat_template: str | None = ...,
        tools: Any = ...,
        *,
        stream: Literal[True],
        lora_request: LoRARequests = ...,
        tool_choice: Any = ...,
        mm_processor_kwargs: Mapping[str, Any] | None = ...,
        add_generation_prompt: bool | None = ...,
        continue_final_message: bool = ...,
    ) -> OutputStream: ...

    def chat(
        self,
        messages: Messages,
        sampling_params: Params = None,
        use_tqdm: bool | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Any = None,
        stream: bool = False,
        lora_request: LoRARequests = None,
        tool_choice: Any = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
    ) -> list[RequestOutput] | OutputStream:
        """Answers a conversation, or several, through the model's chat template.

        messages: one conversation (a list of {"role", "content"} dicts) or a list of them. Content
            is a string or a list of parts: text, and for vision models images and clips
            (docs/media.md). In a list, a text stands for what a user says, and
            token ids or a dict for `generate` for themselves.
        chat_template_kwargs: variables for the template, e.g. {"enable_thinking": False} (it is
            True unless given); "add_generation_prompt" and "chat_template" are understood too. One
            that the template doesn't read warns.
        chat_template: a template, or the name of one of the model's, for this call.
        tools: the functions the template should show, as OpenAI-style dicts. With a
            tool_call_parser the model's calls come as `outputs.tool_calls`, their arguments guided
            to be JSON of the function's schema.
        tool_choice: "auto" (None): the model may call functions; "required": it must; "none": the
            template doesn't show them; {"type": "function", "function": {"name": ...}}: it must
            call that one, once.
        mm_processor_kwargs: how the images and clips of this call are made ready, on top of LLM's.
        add_generation_prompt: whether the template opens an answer; default: it does.
        continue_final_message: the last message is an answer that goes on, instead.

        The rest as in `generate`. `RequestOutput.prompt` is the text made by the template.
        """
        items = conversation_list(messages)
        constraints = Constraints(self._planner)
        params = self._params_list(sampling_params, len(items), "messages", constraints)
        own: dict[str, Any] = {}
        if add_generation_prompt is not None:
            own["add_generation_prompt"] = add_generation_prompt
        if continue_final_message:
            own["continue_final_message"] = True
        if own:
            chat_template_kwargs = {**(chat_template_kwargs or {}), **own}
        options = self._chat_options(
            chat_template, chat_template_kwargs, tools, tool_choice, mm_processor_kwargs
        )
        loras = lora_list(lora_request, len(items), self.args.enable_lora)
        jobs = [
            self._chat_job(item, options, own, lora)
            for item, own, lora in zip(items, params, loras, strict=True)
        ]
        return self._run(jobs, constraints, use_tqdm, stream)

    def beam_search(
        self,
        prompts: Prompts,
        params: BeamSearchParams,
        lora_request: LoRARequests = None,
        use_tqdm: bool = False,
        concurrency_limit: int | None = None,
    ) -> list[BeamSearchOutput]:
        """The params.beam_width most likely outputs of each prompt that are found by going on with
        as many after each token: `sequences`, best first, by vLLM's score (BeamSearchParams).

        prompts: as in `generate`. concurrency_limit: prompts that are searched at once; default:
        all. The rest as in `generate`. Each token of each beam is a request to the engine, whose
        prefix comes from the prefix cache.
        """
        check_beam_params(params)
        if concurrency_limit is not None and concurrency_limit < 1:
            raise ValueError(f"concurrency_limit must be at least 1, got {concurrency_limit}")
        items = prompt_list(prompts)
        loras = lora_list(lora_request, len(items), self.args.enable_lora)
        planner = beam_planner(self._planner)

        def run(jobs: list[Job]) -> list[RequestOutput]:
            self._check_open()
            constraints = Constraints(planner)
            call = RequestGroup(self._session, planner, self._registry, jobs, constraints)
            return run_to_end(call, Progress(call.total, False))

        jobs = [
            self._prompt_job(item, self.default_sampling_params, lora)
            for item, lora in zip(items, loras, strict=True)
        ]
        size = max(1, len(jobs)) if concurrency_limit is None else concurrency_limit
        progress = Progress(len(jobs), use_tqdm)
        found: list[BeamSearchOutput] = []
        try:
            for start in range(0, len(jobs), size):
                search = BeamSearch(planner, params)
                for job in jobs[start : start + size]:
                    search.add(job)
                while asked := search.jobs():
                    search.take(run(asked))
                part = search.outputs()
                progress.update(len(part), 0, 0)
                found += part
        finally:
            progress.close()
        return found

    def encode(
        self,
        prompts: Prompts,
        *,
        pooling_task: str = "embed",
        use_tqdm: bool | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """`embed` by vLLM's more general name: `outputs.data` is the embedding. Raises
        UnsupportedError for another pooling_task than "embed"."""
        if pooling_task != "embed":
            raise UnsupportedError(
                f"pooling_task={quoted(pooling_task)}: 'embed' is what there is; LLM.score has "
                "scores"
            )
        return self.embed(prompts, use_tqdm=use_tqdm, lora_request=lora_request)

    def classify(self, *_: Any, **__: Any) -> NoReturn:
        """Not there: raises UnsupportedError."""
        raise UnsupportedError(
            "classify: heads that classify aren't loaded; SamplingParams(structured_outputs="
            "StructuredOutputsParams(choice=[...])) has a model choose among labels"
        )

    def reward(self, *_: Any, **__: Any) -> NoReturn:
        """Not there: raises UnsupportedError."""
        raise UnsupportedError(
            "reward: heads of reward models aren't loaded; LLM.score has the scores of embeddings "
            "and of rerankers"
        )

    def start_profile(self, *_: Any, **__: Any) -> NoReturn:
        """Not there: raises UnsupportedError."""
        raise UnsupportedError(
            "start_profile: the engine has no profiler; get_metrics and stats have its counters, "
            "and perf and Nsight Systems see what the process does"
        )

    def reset_prefix_cache(self) -> bool:
        """clear_prefix_cache, by vLLM's name. Always True."""
        self.clear_prefix_cache()
        return True

    def embed(
        self,
        prompts: Prompts,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of each input, a list of numbers.

        prompts: a text, a list of texts, one input's ids as list[int], several as list[list[int]],
            or dicts with "prompt" or "prompt_token_ids". Texts get the tokens that the tokenizer
            adds; ids stand as they are.
        prompt_name: of the prompt in config_sentence_transformers.json to put before each text;
            default: its default_prompt_name. prompt: a text to put there instead.
        dimensions: keep the first so many numbers (Matryoshka); default: truncate_dim, else all.
        normalize: to length 1, after that; default: as modules.json says, True without the file.
        truncate_prompt_tokens: of a longer input only the beginning of so many tokens is read, the
            special tokens around it among them; -1: as many as the model takes.
        use_tqdm, lora_request: as in `generate`, one adapter for all.

        How rows are pooled says 1_Pooling/config.json; without modules.json the last token's row
        is taken. An input that can't be served has an error_code other than 200.
        """
        call = EmbedCall(
            self._pooling_planner(),
            prompts,
            prompt_name=prompt_name,
            prompt=prompt,
            dimensions=dimensions,
            normalize=normalize,
            truncate_prompt_tokens=truncate_prompt_tokens,
        )
        return call.finish(self._run_pooled(call.jobs, use_tqdm, lora_request))

    def score(
        self,
        query: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[ScoringRequestOutput]:
        """How well each document answers the query; of several queries, one for each document.

        A model with modules.json compares embeddings: the cosine, with its prompts "query" and
        "document" (or "passage") if it has them. Others are asked as Qwen3-Reranker is, and the
        score is the probability of "yes" against "no".
        instruction: for rerankers: what the query is; default: that of a web search.
        truncate_prompt_tokens, use_tqdm, lora_request: as in `embed`.
        """
        call = ScoreCall(
            self._pooling_planner(), query, documents, instruction, truncate_prompt_tokens
        )
        return call.finish(self._run_pooled(call.jobs, use_tqdm, lora_request))

    def abort(self, request_id: str | Sequence[str] | None = None) -> None:
        """Ends requests in flight, from any thread; their calls return what they have.

        request_id: one id or several (unknown ones are ignored); None: all. See `request_ids`.
        """
        ids = [request_id] if isinstance(request_id, str) else request_id
        self._registry.cancel(ids)

    def close(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent; later calls fail."""
        self._end_media()
        self._session.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _params_list(
        self, params: Params, count: int, name: str, constraints: Constraints
    ) -> list[SamplingParams]:
        if params is None:
            return [self.default_sampling_params] * count
        items = sampling_list(params)
        if len(items) == 1:
            # They hold for every prompt alike, so an error is the call's, not a prompt's.
            check_shared(items[0], self.args, self.model_info.vocab_size)
            constraints.of(items[0])
            return [items[0]] * count
        if len(items) != count:
            raise ValueError(f"{name} and sampling_params must be the same length.")
        return items

    def _run_pooled(
        self, jobs: list[PoolingJob], use_tqdm: bool | None, lora: LoRARequest | None
    ) -> list[PooledResult]:
        progress = Progress(len(jobs), use_tqdm is not False)
        tokens = 0

        def note(prompt_tokens: int) -> None:
            nonlocal tokens
            tokens += prompt_tokens
            progress.update(1, tokens, 0)

        try:
            return self._pooled_call(jobs, lora).run(note)
        finally:
            progress.close()

    def _run(
        self, jobs: list[Job], constraints: Constraints, use_tqdm: bool | None, stream: bool
    ) -> list[RequestOutput] | OutputStream:
        self._check_open()
        call = RequestGroup(self._session, self._planner, self._registry, jobs, constraints)
        progress = Progress(call.total, not stream if use_tqdm is None else use_tqdm)
        if stream:
            kinds = [job.params.output_kind for job in jobs for _ in range(job.params.n)]
            return OutputStream(call, progress, OutputKinds(kinds))
        outputs = run_to_end(call, progress)
        link_outputs(outputs, [job.params.n for job in jobs])
        return outputs
