"""What LLM and AsyncLLM have in common: a model, loaded, with its tokenizer and defaults."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headrace.errors import UnsupportedError
from headrace.hub import resolve_model
from headrace.llm.media import media_access, media_limits, media_reader, text_only
from headrace.llm.metrics import Metric, read_metrics
from headrace.llm.pooling.plan import PoolingJob, PoolingPlanner
from headrace.llm.pooling.run import PooledCall
from headrace.llm.progress import LoadBar
from headrace.llm.requests.planner import RequestPlanner
from headrace.llm.requests.preparation import Job
from headrace.llm.requests.registry import Registry
from headrace.llm.requests.session import SessionLoader
from headrace.media.requests.modality import check_modality_tokens
from headrace.media.requests.placing import added_tokens
from headrace.media.requests.reader import MediaReader
from headrace.native import ModelStats
from headrace.options.engine_args import EngineArgs
from headrace.options.generation_defaults import chat_values, read_generation_defaults
from headrace.options.lora import LoRARequest, lora_list
from headrace.options.sampling_params import BeamSearchParams, SamplingParams
from headrace.options.tools import tool_list
from headrace.parsers.choice import choose_parsers
from headrace.prompts import (
    ChatOptions,
    find_media,
    read_conversation,
    read_prompt,
)
from headrace.quoting import quoted
from headrace.short_repr import short_repr
from headrace.text.templates.chat_template import load_chat_template
from headrace.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.options.vllm_names import LLMKeywords

Params = SamplingParams | Sequence[SamplingParams] | None


class BaseLLM:
    """Loads a model, and turns prompts and conversations into jobs. See LLM for the arguments."""

    _loader: SessionLoader | None = None
    _load_ended = False
    _pooling: PoolingPlanner | None = None
    _media: MediaReader | None = None

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
        tensor_parallel_size: int = 1,
        enable_expert_parallel: bool = False,
        data_parallel_size: int = 1,
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
        reasoning_parser: str | None = None,
        tool_call_parser: str | None = None,
        tool_parser_plugin: str | os.PathLike[str] | None = None,
        limit_mm_per_prompt: Mapping[str, int] | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        allowed_local_media_path: str | os.PathLike[str] | None = None,
        allowed_media_domains: Sequence[str] | None = None,
        max_encoder_tokens: int = 0,
        max_processor_cache: float = -1,
        **kwargs: Unpack[LLMKeywords],
    ) -> None:
        known = {item.name for item in fields(EngineArgs)}
        # The parameters that are EngineArgs' fields, by name.
        given = {name: value for name, value in locals().items() if name in known}
        given["enable_logprob"] = bool(enable_logprob)
        self.args = EngineArgs.from_kwargs({**given, **kwargs})
        template = load_chat_template(chat_template)
        access, item_limits = media_access(self.args), media_limits(self.args)
        branch = revision or "master"
        folder = resolve_model(model, branch)
        own = None if tokenizer is None else resolve_model(tokenizer, branch, weights=False)
        name = os.path.basename(os.path.normpath(os.fspath(model))) or "model"
        options = self.args.model_options(str(folder))
        with closing(LoadBar()) as bar, SessionLoader(name, options, bar.progress) as loader:
            self._loader = loader
            if self._load_ended:
                loader.close()
            self._tokenizer = load_tokenizer(own or folder)
            check_modality_tokens(folder, self._tokenizer)
            defaults = read_generation_defaults(folder)
            parsing = choose_parsers(self.args, self._tokenizer, template)
            self._session = loader.session()
            info = self._session.info
            self._media = media_reader(self.args, access, item_limits, folder, info)
        self.model_info = self._session.info
        seeds = None if self.args.seed is None else random.Random(self.args.seed)
        self._planner = RequestPlanner(
            self.args, defaults, self._tokenizer, self.model_info, parsing, seeds
        )
        self.chat_sampling = chat_values(defaults)
        self._registry = Registry(self._session.wake_waiting)
        self.chat_template = template
        most = defaults.get("max_new_tokens", self.model_info.max_model_len)
        self.default_sampling_params = SamplingParams(max_tokens=most)
        self._loaded()

    def _end_load(self) -> None:
        """By another thread than the one that loads: the constructor raises, or the model is
        closed."""
        self._load_ended = True
        if self._loader is not None:
            self._loader.close()

    def _loaded(self) -> None:
        """For what else a subclass has."""

    def __repr__(self) -> str:
        if not hasattr(self, "model_info"):
            return f"{type(self).__name__}(not loaded)"
        names = ("path", "family", "device", "dtype", "max_model_len")
        facts = {name: getattr(self.model_info, name) for name in names}
        return short_repr(self, {**facts, **({"closed": True} if self._session.closed else {})})

    def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None if its folder has none."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What a call without sampling_params uses: the model's defaults. A copy, to be changed."""
        return self.default_sampling_params.clone()

    def request_ids(self) -> list[str]:
        """The ids of the requests in flight."""
        return self._registry.ids()

    def stats(self) -> ModelStats:
        """The engine's counters."""
        return self._session.stats()

    def get_metrics(self) -> list[Metric]:
        """The engine's counters as vLLM's scripts read them: Gauge and Counter objects of
        headrace.v1.metrics.reader, with the names that the server's /metrics has."""
        folder = os.path.basename(os.path.normpath(self.model_info.path))
        return read_metrics(self.stats(), folder)

    def clear_prefix_cache(self) -> None:
        """Forgets the KV blocks of finished requests."""
        self._session.clear_prefix_cache()

    @property
    def llm_engine(self) -> SimpleNamespace:
        """FastDeploy's names for parts of this object."""
        processor = SimpleNamespace(tokenizer=self._tokenizer)
        return SimpleNamespace(cfg=self.args, data_processor=processor)

    def conversation_ids(
        self,
        messages: Any,
        *,
        tools: Any = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The ids that `chat` puts before the model for one conversation: to count them, say.

        add_special_tokens: with those that the tokenizer adds to a text of its own. Loads images
        and clips as `chat` does. Raises ValueError, TypeError.
        """
        options = self._chat_options(None, chat_template_kwargs, tools)
        prompt = self._chat_job(messages, options, self.default_sampling_params, None).prompt()
        if not add_special_tokens or self._tokenizer is None:
            return prompt.token_ids
        before, after = added_tokens(self._tokenizer)
        return [*before, *prompt.token_ids, *after]

    def _pooling_planner(self) -> PoolingPlanner:
        """Made by the first call. Raises ValueError for files that the engine can't go by."""
        self._check_open()
        if self._pooling is None:
            self._pooling = PoolingPlanner(self.model_info, self._tokenizer)
        return self._pooling

    def _pooled_call(self, jobs: Sequence[PoolingJob], lora: LoRARequest | None) -> PooledCall:
        own = lora_list(lora, 1, self.args.enable_lora)[0]
        raises = self.args.raise_on_error
        return PooledCall(self._session, self._registry, jobs, own, raises)

    def _prompt_job(self, prompt: Any, params: SamplingParams, lora: LoRARequest | None) -> Job:
        """`prompt`: an item of prompt_list."""
        chat = self._chat_options(None, None, None)
        read = partial(read_prompt, prompt, self._tokenizer, chat)
        return Job(prompt, partial(find_media, prompt, chat), read, params, lora)

    def _chat_options(
        self,
        template: str | None,
        kwargs: Mapping[str, Any] | None,
        tools: Any,
        tool_choice: Any = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatOptions:
        return ChatOptions(
            template,
            kwargs,
            tool_list(tools),
            tool_choice,
            finds_opening=self._planner.parsing.reasoning is not None,
            default_template=self.chat_template,
            max_tokens=self.model_info.max_model_len,
            media=self._media,
            mm_processor_kwargs=mm_processor_kwargs,
            text_only=text_only(self.args),
        )

    def _chat_job(
        self, messages: Any, options: ChatOptions, params: SamplingParams, lora: LoRARequest | None
    ) -> Job:
        """`messages`: an item of conversation_list."""
        read = partial(read_conversation, messages, self._tokenizer, options)
        return Job(messages, partial(find_media, messages, options), read, params, lora)

    def _end_media(self) -> None:
        """Nothing more of images and clips is loaded."""
        if self._media is not None:
            self._media.close()

    def _check_open(self) -> None:
        if self._session.closed:
            raise RuntimeError(f"this {type(self).__name__} has been closed")


def sampling_list(params: Any) -> list[SamplingParams]:
    """One or several. Raises TypeError for anything else."""
    if isinstance(params, BeamSearchParams):
        raise UnsupportedError(
            "BeamSearchParams go to LLM.beam_search; generate and chat take SamplingParams"
        )
    items = [params] if isinstance(params, SamplingParams) else params
    if not isinstance(items, (list, tuple)) or not all(
        isinstance(item, SamplingParams) for item in items
    ):
        raise TypeError(
            f"sampling_params must be a SamplingParams or a list of them, got {quoted(params)}"
        )
    return list(items)
