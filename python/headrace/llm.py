"""The offline interface: load a model, generate, chat."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.call import Call, Job, OutputStream, Registry, run_to_end
from headrace.engine_args import EngineArgs
from headrace.errors import UnsupportedError
from headrace.hub import resolve_model
from headrace.lora import LoRARequests, lora_list
from headrace.native import ModelStats
from headrace.outputs import RequestOutput
from headrace.progress import Progress
from headrace.prompts import (
    ChatOptions,
    conversation_list,
    prompt_list,
    read_conversation,
    read_prompt,
    tool_list,
)
from headrace.quoting import quoted
from headrace.request_params import RequestPlanner, check_shared, read_generation_defaults
from headrace.runtime import SessionLoader
from headrace.sampling_params import BeamSearchParams, SamplingParams, is_default
from headrace.short_repr import short_repr
from headrace.text.chat_template import load_chat_template
from headrace.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.other_engine_args import OtherEngineArgs

Prompts = (
    str
    | Mapping[str, Any]
    | Sequence[str]
    | Sequence[int]
    | Sequence[Sequence[int]]
    | Sequence[Mapping[str, Any]]
)
Messages = Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]]
Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
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

    def __init__(
        self,
        model: str | os.PathLike[str],
        revision: str | None = "master",
        tokenizer: str | os.PathLike[str] | None = None,
        enable_logprob: bool | None = False,
        chat_template: str | None = None,
        *,
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int | None = None,
        block_size: int = 64,
        num_gpu_blocks_override: int | None = None,
        kv_cache_bytes: int = 0,
        gpu_memory_utilization: float = 0.9,
        enable_prefix_caching: bool = True,
        swap_space: float | None = None,
        dtype: str = "auto",
        device: str = "auto",
        num_threads: int = 0,
        seed: int | None = None,
        max_logprobs: int = 20,
        logprobs_mode: str = "raw_logprobs",
        guided_decoding_backend: str = "auto",
        guided_decoding_disable_any_whitespace: bool = False,
        load_choices: str = "default_v1",
        packed_weights: str | os.PathLike[str] | None = None,
        packed_copy: bool = False,
        quantization: Any = None,
        kv_cache_dtype: str = "auto",
        kv_cache_quant_type: Any = None,
        raise_on_error: bool = False,
        enable_lora: bool = False,
        max_loras: int = 1,
        max_lora_rank: int = 16,
        speculative_config: Any = None,
        **kwargs: Unpack[OtherEngineArgs],
    ) -> None:
        known = {item.name for item in fields(EngineArgs)}
        # The parameters that are EngineArgs' fields, by name.
        given = {name: value for name, value in locals().items() if name in known}
        given["enable_logprob"] = bool(enable_logprob)
        self.args = EngineArgs.from_kwargs({**given, **kwargs})
        template = load_chat_template(chat_template)
        branch = revision or "master"
        folder = resolve_model(model, branch)
        own = None if tokenizer is None else resolve_model(tokenizer, branch, weights=False)
        name = os.path.basename(os.path.normpath(os.fspath(model))) or "model"
        with SessionLoader(name, self.args.model_options(str(folder))) as loader:
            self._tokenizer = load_tokenizer(own or folder)
            defaults = read_generation_defaults(folder)
            self._session = loader.session()
        self.model_info = self._session.info
        seeds = None if self.args.seed is None else random.Random(self.args.seed)
        self._planner = RequestPlanner(self.args, defaults, self._tokenizer, self.model_info, seeds)
        self._registry = Registry()
        self.chat_template = template
        self.default_sampling_params = SamplingParams(max_tokens=self.model_info.max_model_len)

    def __repr__(self) -> str:
        if not hasattr(self, "model_info"):
            return "LLM(not loaded)"
        names = ("path", "family", "device", "dtype", "max_model_len")
        facts = {name: getattr(self.model_info, name) for name in names}
        return short_repr(self, {**facts, **({"closed": True} if self._session.closed else {})})

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
            "bad_words", "request_id".
        sampling_params: one for all prompts, or a list with one for each; default: the model's,
            with a fresh seed for each prompt.
        use_tqdm: show a progress bar on stderr; None: unless it is a stream.
        stream: return an iterator of increments. Each item is a list with one entry per output,
            None where nothing is new. The texts of an output's increments, joined, are its text.
        lora_request: the adapter to answer with, one for all prompts or a list with one or None
            for each; needs enable_lora. One that can't be loaded fails its own prompts.

        Returns one RequestOutput per prompt in the order of the prompts; with
        `SamplingParams(n=...)`, n in a row for each.
        """
        items = prompt_list(prompts)
        params = self._params_list(sampling_params, len(items), "prompts")
        chat = ChatOptions(
            default_template=self.chat_template, max_tokens=self.model_info.max_model_len
        )
        loras = lora_list(lora_request, len(items), self.args.enable_lora)
        jobs = [
            Job(item, partial(read_prompt, item, self._tokenizer, chat), own, lora)
            for item, own, lora in zip(items, params, loras, strict=True)
        ]
        return self._run(jobs, use_tqdm, stream)

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
    ) -> list[RequestOutput] | OutputStream:
        """Answers a conversation, or several, through the model's chat template.

        messages: one conversation (a list of {"role", "content"} dicts) or a list of them. Content
            is a string or a list of text parts. In a list, a text stands for what a user says, and
            token ids or a dict for `generate` for themselves.
        chat_template_kwargs: variables for the template, e.g. {"enable_thinking": False} (it is
            True unless given); "add_generation_prompt" and "chat_template" are understood too. One
            that the template doesn't read warns.
        chat_template: a template, or the name of one of the model's, for this call.
        tools: the tools the template should show, as OpenAI-style dicts. A template that shows
            none warns.

        The rest as in `generate`. `RequestOutput.prompt` is the text made by the template.
        """
        items = conversation_list(messages)
        params = self._params_list(sampling_params, len(items), "messages")
        options = ChatOptions(
            chat_template,
            chat_template_kwargs,
            tool_list(tools),
            default_template=self.chat_template,
            max_tokens=self.model_info.max_model_len,
        )
        loras = lora_list(lora_request, len(items), self.args.enable_lora)
        jobs = [
            Job(item, partial(read_conversation, item, self._tokenizer, options), own, lora)
            for item, own, lora in zip(items, params, loras, strict=True)
        ]
        return self._run(jobs, use_tqdm, stream)

    def abort(self, request_id: str | Sequence[str] | None = None) -> None:
        """Ends requests in flight, from any thread; their calls return what they have.

        request_id: one id or several (unknown ones are ignored); None: all. See `request_ids`.
        """
        ids = [request_id] if isinstance(request_id, str) else request_id
        self._registry.cancel(ids)

    def request_ids(self) -> list[str]:
        """The ids of the requests in flight."""
        return self._registry.ids()

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None if its folder has none."""
        return self._tokenizer

    def stats(self) -> ModelStats:
        """The engine's counters."""
        return self._session.stats()

    def clear_prefix_cache(self) -> None:
        """Forgets the KV blocks of finished requests."""
        self._session.clear_prefix_cache()

    def close(self) -> None:
        """Cancels what runs and gives all memory back. Idempotent; later calls fail."""
        self._session.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def llm_engine(self) -> SimpleNamespace:
        """FastDeploy's names for parts of this object."""
        processor = SimpleNamespace(tokenizer=self._tokenizer)
        return SimpleNamespace(cfg=self.args, data_processor=processor)

    def _params_list(self, params: Params, count: int, name: str) -> list[SamplingParams]:
        if params is None:
            default = self.default_sampling_params
            drawn = is_default(default.seed)
            return [replace(default, seed=None) if drawn else default for _ in range(count)]
        if isinstance(params, BeamSearchParams):
            raise UnsupportedError(
                "BeamSearchParams: Headrace samples, it has no beam search; pass SamplingParams"
            )
        items = [params] if isinstance(params, SamplingParams) else params
        if not isinstance(items, (list, tuple)) or not all(
            isinstance(item, SamplingParams) for item in items
        ):
            raise TypeError(
                f"sampling_params must be a SamplingParams or a list of them, got {quoted(params)}"
            )
        if len(items) == 1:
            # They hold for every prompt alike, so an error is the call's, not a prompt's.
            check_shared(items[0], self.args, self.model_info.vocab_size)
            self._planner.constraint(items[0])
            return [items[0]] * count
        if len(items) != count:
            raise ValueError(f"{name} and sampling_params must be the same length.")
        return list(items)

    def _run(
        self, jobs: list[Job], use_tqdm: bool | None, stream: bool
    ) -> list[RequestOutput] | OutputStream:
        if self._session.closed:
            raise RuntimeError("this LLM has been closed")
        call = Call(self._session, self._planner, self._registry, jobs)
        progress = Progress(call.total, not stream if use_tqdm is None else use_tqdm)
        if stream:
            return OutputStream(call, progress, self.args.raise_on_error)
        return run_to_end(call, progress, self.args.raise_on_error)
