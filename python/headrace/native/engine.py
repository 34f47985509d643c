"""Models by name, and the way to submit requests to them."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace import _core
from headrace.hub import is_hub_id, resolve_model
from headrace.media.requests.modality import check_modality_tokens
from headrace.native.config import GenerationConfig
from headrace.native.media import engine_media_reader, media_inputs
from headrace.native.request import Request
from headrace.native.text_reader import stop_strings
from headrace.options.embedding import EmbeddingFiles, read_embedding_files
from headrace.options.generation_defaults import read_generation_defaults, sampling_values
from headrace.options.sampling_params import SamplingParams
from headrace.options.tools import tool_list
from headrace.prompts import ChatOptions, read_conversation
from headrace.quoting import checked_text, quoted
from headrace.short_repr import short_repr
from headrace.text.output_text import OutputText
from headrace.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from headrace.grammar.compiler import Guided
    from headrace.media.requests.reader import MediaReader

logger = logging.getLogger("headrace")

LoadProgress = Callable[[str, int, int], object]
"""Told how far a load is: stage, bytes done, bytes in all. See Engine.install_model."""

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _log(level: str, message: str) -> None:
    logger.log(_LEVELS.get(level, logging.INFO), "%s", message)


class Engine:
    """Models by name, each with a thread that batches its requests.

    A model is installed, then running, stopped (and perhaps started again), and released. Any
    thread may call any method. No call keeps the GIL while it waits; from a coroutine, run those
    that take long (install, start, stop, release, close) by `asyncio.to_thread`.

    Errors are HeadraceError with a stable `code`: "not_found" for a name that isn't installed,
    "invalid_state" for a call that doesn't fit the model's state, "invalid_argument" (also a
    ValueError) for a bad value, and others from loading. Leaving the `with` block, `close()`,
    dropping the engine and the end of the program cancel what runs and give all memory back.
    Requests and queues stay readable.
    """

    __slots__ = (
        "__weakref__",
        "_core",
        "_embedding_files",
        "_finalizer",
        "_lock",
        "_media",
        "_tokenizers",
    )

    def __init__(self, *, log_sink: Callable[[str, str], None] | None = _log) -> None:
        """`log_sink(level, message)`: default: Python's logger "headrace"; None: nothing."""
        self._core = _core.Engine(log_sink=log_sink)
        self._lock = threading.Lock()
        self._tokenizers: dict[str, tuple[str, Tokenizer | None]] = {}  # with the folder
        self._embedding_files: dict[str, tuple[str, EmbeddingFiles]] = {}  # likewise
        self._media: dict[str, tuple[str, MediaReader | None]] = {}  # likewise
        self._finalizer = weakref.finalize(self, self._core.close)
        # At the end of the program the extension closes it, when no thread can call it any more.
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return short_repr(self, {"closed": True} if self.closed else {"models": self.models()})

    def install_model(
        self,
        name: str,
        options: _core.ModelOptions | str | os.PathLike[str],
        *,
        progress: LoadProgress | None = None,
    ) -> None:
        """Reads a model folder, packs its weights and reserves memory. On failure nothing is left
        behind. A path alone means ModelOptions(path=...); there, the id of a model on the hub will
        do, too.

        progress: called as progress(stage, bytes_done, bytes_total) on this thread, about ten times
            a second and at the end. Stages come in this order, and some are left out: "opening",
            "checking" (a packed file), "weights", "reserving" (the KV cache); bytes are those of
            the stage, 0 of 0 where none are counted. What it raises ends the load and is raised.

        Ctrl-C on the main thread ends the load, and so does close() on any ("cancelled").
        """
        if isinstance(options, (str, os.PathLike)):
            options = _core.ModelOptions(path=_local_folder(os.fspath(options)))
        self._core.install_model(_name(name), options, progress=progress)

    def start_model(self, name: str) -> None:
        """Warms up and starts to serve. The model must be installed or stopped."""
        self._core.start_model(_name(name))

    def stop_model(self, name: str, timeout: float | None = None) -> bool:
        """Refuses new requests and waits until those in hand have finished.

        False if `timeout` seconds passed first; then, or after Ctrl-C, it goes on stopping.
        """
        return self._core.stop_model(_name(name), timeout)

    def release_model(self, name: str) -> None:
        """Cancels what still runs, in any state, and gives all memory of the model back."""
        self._core.release_model(_name(name))
        with self._lock:
            self._tokenizers.pop(name, None)
            self._embedding_files.pop(name, None)
            self._media.pop(name, None)

    def submit(
        self,
        model: str,
        prompt: str | Sequence[int],
        config: GenerationConfig | None = None,
        *,
        request_id: str = "",
        priority: int = 0,
        timeout: float | None = None,
        stop: str | Sequence[str] = (),
        detokenize: bool | None = None,
        guided: Guided = None,
        lora: str = "",
        detached: bool = False,
        output: Literal["text", "embedding"] | _core.PoolingParams = "text",
        media: Sequence[_core.MediaInput] = (),
        continues: bool = True,
    ) -> Request:
        """Queues a request. A bad one raises and costs the others nothing.

        prompt: token ids, or text, which the model's tokenizer takes as it stands.
        request_id: for messages; "": the engine makes one.
        priority: lower runs first. timeout: seconds, after which it ends with "deadline_exceeded".
        stop: texts that end the output before they begin. They are found as it is read: one that
            nobody reads goes on.
        detokenize: whether outputs have text; default: if the prompt is text.
        guided: what the output must conform to: GuidedDecodingParams, a response_format such as
            {"type": "json_object"}, or what headrace.grammar.compile_constraint has made.
        lora: the name of an adapter that is loaded; "": none.
        detached: run to the end even if the Request and its queue are dropped, which cancels
            others: to fill the prefix cache, for example.
        output: "embedding": numbers instead of text, as Output.pooled, pooled as the files that
            sentence-transformers puts beside a model say (docs/embeddings.md); PoolingParams: as
            these say. A text gets the tokens that the tokenizer adds to one of its own, but no
            prompt of the model's (LLM.embed does that). What is for text alone (config, stop,
            detokenize, guided) must be left out.
        media: images and clips, in order of their place in the prompt, which must be token ids: any
            id of the vocabulary stands where a row of theirs goes. Errors name the item,
            "media[1]: ...". headrace.media makes pixels and places of files and arrays.
        continues: the output's text goes on from the prompt's, so that a space at its start stays.
            False, or with `guided`: it is a text of its own, as the answer in a chat is.
        """
        if media and isinstance(prompt, str):
            raise ValueError("media have places in a prompt of token ids: give ids, not text")
        if output != "text":
            pooling = self._pooling(model, output)
            given = {"config": config, "stop": stop, "detokenize": detokenize, "guided": guided}
            _refuse_given(given)
            ids = self._encode(model, prompt, True) if isinstance(prompt, str) else list(prompt)
            request = self._core.submit(
                _name(model),
                prompt_token_ids=ids,
                sampling=_core.SamplingParams(),
                request_id=checked_text(request_id, "request_id"),
                priority=priority,
                timeout=timeout,
                lora_name=checked_text(lora, "lora"),
                pooling=pooling,
                media=list(media),
            )
            return Request(request, ids, None, detached)
        config = GenerationConfig() if config is None else config
        is_text = isinstance(prompt, str)
        ids = self._encode(model, prompt) if isinstance(prompt, str) else list(prompt)
        has_text = is_text if detokenize is None else detokenize
        after = ids if continues and guided is None else ()
        text = self._output_text(model, config, stop, has_text, after)
        request = self._core.submit(
            _name(model),
            prompt_token_ids=ids,
            sampling=config.to_core(),
            request_id=checked_text(request_id, "request_id"),
            priority=priority,
            timeout=timeout,
            constraint=self._constraint(model, guided),
            lora_name=checked_text(lora, "lora"),
            media=list(media),
        )
        return Request(request, ids, text, detached)

    def chat(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        config: GenerationConfig | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        tools: Any = None,
        request_id: str = "",
        priority: int = 0,
        timeout: float | None = None,
        stop: str | Sequence[str] = (),
        guided: Guided = None,
        lora: str = "",
        detached: bool = False,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
    ) -> Request:
        """Queues the answer to a conversation: `submit` of what the chat template makes of it.

        messages: {"role", "content"} dicts. chat_template_kwargs, chat_template, tools,
        mm_processor_kwargs: as in LLM.chat. Images and clips are loaded before this returns; file
        and http(s) addresses need the environment's leave (docs/media.md).
        Outputs have the text as the model wrote it: thoughts and calls are taken out of it by
        headrace.parsers.output_parser (docs/tools.md), or by LLM and AsyncLLM themselves.
        Raises TemplateError, a ValueError, for what the template refuses.
        """
        info = self._core.model_info(_name(model))
        options = ChatOptions(
            chat_template,
            chat_template_kwargs,
            tool_list(tools),
            max_tokens=info.max_model_len,
            media=self._media_reader(model, info),
            mm_processor_kwargs=mm_processor_kwargs,
            text_only="this model reads text only: it has no vision tower",
        )
        prompt = read_conversation(messages, self._needed_tokenizer(model), options)
        return self.submit(
            model,
            prompt.token_ids,
            config,
            request_id=request_id,
            priority=priority,
            timeout=timeout,
            stop=stop,
            detokenize=True,
            guided=guided,
            lora=lora,
            detached=detached,
            media=media_inputs(prompt.media),
            continues=not prompt.parts.opens_answer,
        )

    def generation_config(self, model: str) -> GenerationConfig:
        """The sampling values of the model's generation_config.json, neutral where it has none:
        what `LLM` takes by default. Change some by dataclasses.replace."""
        folder = Path(self._core.model_info(_name(model)).path)
        return GenerationConfig(
            **sampling_values(SamplingParams(), read_generation_defaults(folder))
        )

    def load_lora(self, model: str, name: str, path: str | os.PathLike[str]) -> None:
        """Reads a PEFT folder, for requests to use by name, while the model goes on.

        Errors: "invalid_state" for a name that is taken, "limit_exceeded" beyond the model's
        max_loras and max_lora_rank, and others that name file and tensor or key.
        """
        self._core.load_lora(
            _name(model), checked_text(name, "name"), checked_text(os.fspath(path), "path")
        )

    def unload_lora(self, model: str, name: str) -> None:
        """Gives its memory back. "invalid_state" while a request that has not finished uses it."""
        self._core.unload_lora(_name(model), checked_text(name, "name"))

    def loras(self, model: str) -> list[_core.LoraInfo]:
        """The adapters that are loaded, by name."""
        return self._core.loras(_name(model))

    def tokenizer(self, model: str) -> Tokenizer | None:
        """The tokenizer of the model's folder, read when it is first used; None if it has none."""
        path = self._core.model_info(_name(model)).path
        with self._lock:
            known = self._tokenizers.get(model)
            if known is None or known[0] != path:
                tokenizer = load_tokenizer(Path(path))
                check_modality_tokens(Path(path), tokenizer)
                known = self._tokenizers[model] = (path, tokenizer)
            return known[1]

    def model_info(self, name: str) -> _core.ModelInfo:
        return self._core.model_info(_name(name))

    def model_stats(self, name: str) -> _core.ModelStats:
        """Counters since start_model, and what the model holds now."""
        return self._core.model_stats(_name(name))

    def models(self) -> list[str]:
        """Names of the installed models."""
        return self._core.models()

    def clear_prefix_cache(self, name: str) -> None:
        """Drops what finished requests left in the cache; returns when it is done."""
        self._core.clear_prefix_cache(_name(name))

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Cancels and releases everything. Idempotent; later calls raise."""
        self._finalizer()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _output_text(
        self,
        model: str,
        config: GenerationConfig,
        stop: str | Sequence[str],
        wanted: bool,
        after: Sequence[int],
    ) -> OutputText | None:
        stops = stop_strings(stop)
        if not wanted:
            if stops is not None:
                raise ValueError("stop needs outputs with text: pass detokenize=True")
            return None
        tokenizer = self._needed_tokenizer(model)
        detokenizer = tokenizer.detokenizer(config.skip_special_tokens, after=after)
        return OutputText(detokenizer, stops, min_tokens=config.min_tokens, cuts_tokens=False)

    def _needed_tokenizer(self, model: str) -> Tokenizer:
        tokenizer = self.tokenizer(model)
        if tokenizer is None:
            raise ValueError(
                f"model {quoted(model)} has no tokenizer in its folder: submit token ids, without "
                "text"
            )
        return tokenizer

    def _media_reader(self, model: str, info: _core.ModelInfo) -> MediaReader | None:
        with self._lock:
            known = self._media.get(model)
            if known is None or known[0] != info.path:
                known = self._media[model] = (info.path, engine_media_reader(info))
            return known[1]

    def _constraint(self, model: str, guided: Guided) -> _core.TokenConstraint | None:
        if guided is None:
            return None
        from headrace.grammar import compile_constraint

        return compile_constraint(guided, self.tokenizer(model))

    def _pooling(self, model: str, output: Any) -> _core.PoolingParams:
        if isinstance(output, _core.PoolingParams):
            return output
        if output != "embedding":
            raise ValueError(
                f'output must be "text", "embedding" or PoolingParams, got {quoted(output)}'
            )
        path = self._core.model_info(_name(model)).path
        with self._lock:
            known = self._embedding_files.get(model)
            if known is None or known[0] != path:
                known = path, read_embedding_files(Path(path))
                self._embedding_files[model] = known
        files = known[1]
        return _core.PoolingParams(
            pooling=_core.Pooling[files.pooling.upper()],
            dimensions=files.dimensions or 0,
            normalize=files.normalize,
            use_head=files.dense,
        )

    def _encode(self, model: str, text: str, add_special_tokens: bool = False) -> list[int]:
        most = self._core.model_info(_name(model)).max_model_len
        return self._needed_tokenizer(model).encode(text, add_special_tokens, max_tokens=most)


def _refuse_given(given: Mapping[str, Any]) -> None:
    """Raises ValueError for what is for text alone."""
    for name, value in given.items():
        if value is not None and value != ():
            raise ValueError(f"{name} is for text: leave it out with output='embedding'")


def _name(model: str) -> str:
    return checked_text(model, "the model's name")


def _local_folder(path: str) -> str:
    """Of a model on the hub, the folder that it is fetched to."""
    checked_text(path, "path")
    return str(resolve_model(path)) if is_hub_id(path) else path


def describe_model(folder: str | os.PathLike[str]) -> _core.ModelInfo:
    """Family and shapes from the folder's config alone; no weights are read."""
    return _core.model_family(checked_text(os.fspath(folder), "folder"))


def describe_cpu() -> _core.CpuInfo:
    """This machine as the CPU backend sees it: kernel sets, cores, NUMA nodes, huge pages."""
    return _core.describe_cpu()


def describe_gpus() -> list[_core.GpuInfo]:
    """The GPUs that the NVIDIA driver shows, each with why it can't be used, if it can't.

    Raises HeadraceError where there are none, saying what is missing.
    """
    return _core.describe_gpus()


def available_cpu_isas() -> list[str]:
    """The CPU kernel sets that run on this machine, the best one first."""
    return _core.available_cpu_isas()
