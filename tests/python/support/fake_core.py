"""A pure-Python stand-in for headrace._core, with a toy model whose answers tests can script.
Text is the engine's own.

Without a script the model echoes: it generates the tokens of its prompt, then end-of-sequence.
A script replaces that: `fake_core.script = lambda prompt, output, seed: next_token`. One loop
thread per model advances every running request by one token per step, as the engine does.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fake_files import PACKED_FILE_NAME, check_packed, model_family, pack_model
from fake_options import (
    LogprobsKind,
    ModelOptions,
    OutOfBlocks,
    Pooling,
    PoolingParams,
    SamplingParams,
    SpeculativeOptions,
)
from fake_requests import Request, RequestState, ResultQueue
from fake_selector import OutputSelector
from fake_types import (
    CpuInfo,
    CpuIsaInfo,
    Failure,
    FinishReason,
    GpuInfo,
    HeadraceError,
    InvalidArgumentError,
    LoraInfo,
    MediaInput,
    MediaRun,
    ModelInfo,
    ModelState,
    ModelStats,
    Output,
    PackReport,
    PositionLogprobs,
    Refusal,
    RequestStats,
    RequestStatus,
)

import headrace
from headrace._core import (
    ChatTemplate,
    Detokenizer,
    OutputText,
    StopMatch,
    StopStrings,
    TextTokenizer,
    chat_templates,
)

__all__ = [
    "PACKED_FILE_NAME",
    "ChatTemplate",
    "CpuInfo",
    "CpuIsaInfo",
    "Detokenizer",
    "Engine",
    "FinishReason",
    "GpuInfo",
    "HeadraceError",
    "InvalidArgumentError",
    "LogprobsKind",
    "LoraInfo",
    "MediaInput",
    "MediaRun",
    "ModelInfo",
    "ModelOptions",
    "ModelState",
    "ModelStats",
    "OutOfBlocks",
    "Output",
    "OutputSelector",
    "OutputText",
    "PackReport",
    "Pooling",
    "PoolingParams",
    "PositionLogprobs",
    "Request",
    "RequestStats",
    "RequestStatus",
    "ResultQueue",
    "SamplingParams",
    "SpeculativeOptions",
    "StopMatch",
    "StopStrings",
    "TextTokenizer",
    "available_cpu_isas",
    "chat_templates",
    "check_packed",
    "describe_cpu",
    "describe_gpus",
    "model_family",
    "pack_model",
]


def install() -> None:
    """Takes the place of the engine in a program of its own."""
    sys.modules["headrace._core"] = vars(headrace)["_core"] = sys.modules[__name__]


__version__ = "0.0.0"

Script = Callable[[list[int], list[int], int], int]

script: Script | None = None
step_seconds = 0.0005
prefix_hits = 0  # num_cached_tokens reported for every request
submitted_media: list[list[MediaInput]] = []  # of each request, as it came
host_hits = 0  # of these, those from swap_space


class _Model:
    """The loop thread: one token per running request and step."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.options = options
        self.info = model_family(options.path)
        self.info.name = name
        self.info.max_model_len = options.max_model_len or self.info.max_model_len
        self.info.max_num_seqs = options.max_num_seqs
        self.info.block_size = options.block_size
        self.info.max_loras = options.max_loras
        self.stats = ModelStats()
        self.lock = threading.Condition()
        self.waiting: deque[RequestState] = deque()
        self.running: list[RequestState] = []
        self.stopping = False
        self.thread = threading.Thread(target=self._loop, daemon=True)

        self.loras: dict[str, LoraInfo] = {}

    def start(self) -> None:
        self.thread.start()

    def load_lora(self, name: str, path: str) -> None:
        if not Path(path).is_dir():
            raise Failure(f"{path} is not a folder", "not_found")
        with self.lock:
            if len(self.loras) >= self.options.max_loras:
                raise Failure("too many adapters", "limit_exceeded")
            if name in self.loras:
                raise Failure(f"adapter {name} is loaded already", "invalid_state")
            self.loras[name] = LoraInfo(name, path)

    def unload_lora(self, name: str) -> None:
        if {lora.name: lora for lora in self.list_loras()}[name].live_requests:
            raise Failure(f"adapter {name} is in use", "invalid_state")
        del self.loras[name]

    def list_loras(self) -> list[LoraInfo]:
        with self.lock:
            live = [s.lora_name for s in (*self.waiting, *self.running) if not s.news.finished]
            for name, lora in self.loras.items():
                lora.live_requests = live.count(name)
            return list(self.loras.values())

    def submit(self, state: RequestState) -> None:
        if not 1 <= len(state.prompt) <= self.info.max_model_len - 1:
            raise Failure(f"prompt of {len(state.prompt)} tokens", "limit_exceeded")
        for name in ("prompt_token_ids", "stop_token_ids"):
            ids = state.prompt if name == "prompt_token_ids" else state.sampling.stop_token_ids
            for place, token in enumerate(ids):
                if not 0 <= token < self.info.vocab_size:
                    raise Refusal(
                        f"{name}[{place}] is {token}, which is outside the vocabulary of "
                        f"{self.info.vocab_size} ids."
                    )
        with self.lock:
            if state.lora_name and state.lora_name not in self.loras:
                raise Failure(f"no adapter {state.lora_name}", "not_found")
            self.waiting.append(state)
            self.lock.notify_all()

    def close(self) -> None:
        with self.lock:
            self.stopping = True
            self.lock.notify_all()
        if self.thread.is_alive():
            self.thread.join()

    def _loop(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.stopping or self.waiting or self.running)
                if self.stopping:
                    break
                while self.waiting and len(self.running) < self.options.max_num_seqs:
                    self.running.append(self.waiting.popleft())
                now = list(self.running)
            self.stats.steps += 1
            for state in now:
                self._advance(state)
            self.running = [state for state in self.running if not state.news.finished]
            time.sleep(step_seconds)
        for state in [*self.running, *self.waiting]:
            self._end(state, FinishReason.ABORT)

    def _advance(self, state: RequestState) -> None:
        if state.cancelled:
            self._end(state, FinishReason.ABORT)
            return
        now, stats = time.time(), state.stats
        if not stats.first_scheduled_time:
            stats.first_scheduled_time = now
            if state.sampling.prompt_logprobs is not None:
                positions = self._prompt_positions(state)
                state.publish(lambda news: news.prompt_logprobs.extend(positions))
        try:
            token = self._choose(state)
        except Exception as error:
            message = str(error)
            state.publish(lambda news: _set_error(news, message))
            return
        state.output.append(token)
        stats.generated_tokens = len(state.output)
        stats.first_token_time = stats.first_token_time or now
        stats.last_token_time = now
        self.stats.generated_tokens += 1
        self._emit(state, token)

    def _emit(self, state: RequestState, token: int) -> None:
        params = state.sampling
        room = self.info.max_model_len - len(state.prompt)
        limit = min(params.max_tokens or room, room)
        sequences = [place for place, s in enumerate(params.stop_sequences) if _ends(state, s)]

        def change(news: Output) -> None:
            news.token_ids.append(token)
            if params.logprobs is not None:
                news.logprobs.append(_position(token, params.logprobs, self.info.vocab_size))

        state.publish(change)  # before the status that ends the request
        if token in self._ends(params):
            self._end(state, FinishReason.STOP, token)
        elif sequences:
            self._end(state, FinishReason.STOP, stop_sequence=sequences[0])
        elif len(state.output) >= limit:
            self._end(state, FinishReason.LENGTH)

    def _ends(self, params: SamplingParams) -> set[int]:
        own = () if params.ignore_eos else self.info.eos_token_ids
        return {*own, *params.stop_token_ids}

    def _choose(self, state: RequestState) -> int:
        params, place = state.sampling, len(state.output)
        for token, bias in params.logit_bias:
            if bias >= 100:
                return token
        eos = self.info.eos_token_ids[0] if self.info.eos_token_ids else 0
        if script is not None:
            token = script(state.prompt, state.output, state.seed)
        else:
            token = state.prompt[place] if place < len(state.prompt) else eos
        banned = {
            s[-1] for s in params.bad_words if state.output[1 - len(s) :] == s[:-1] or len(s) == 1
        }
        if place < params.min_tokens:
            banned |= self._ends(params)
        while token in banned:
            token = (token + 1) % self.info.vocab_size
        return token

    def _prompt_positions(self, state: RequestState) -> list[PositionLogprobs]:
        count = state.sampling.prompt_logprobs or 0
        return [_position(token, count, self.info.vocab_size) for token in state.prompt[1:]]

    def _end(
        self,
        state: RequestState,
        reason: FinishReason,
        stop_token: int = -1,
        stop_sequence: int = -1,
    ) -> None:
        state.stats.finished_time = time.time()
        self.stats.finished_requests += 1

        def change(news: Output) -> None:
            news.finished, news.finish_reason, news.stop_token = True, reason, stop_token
            news.stop_sequence = stop_sequence

        state.publish(change)


def _ends(state: RequestState, sequence: Sequence[int]) -> bool:
    return state.output[-len(sequence) :] == list(sequence)


def _set_error(news: Output, message: str) -> None:
    news.finished, news.finish_reason = True, FinishReason.ERROR
    news.error_code, news.error_message = "internal", message


def _position(token: int, count: int, vocab_size: int) -> PositionLogprobs:
    """A fixed distribution: token t has log-probability -(t + 1) / 10, so its rank is t + 1."""
    top = [(t, -(t + 1) / 10) for t in range(min(count, vocab_size))]
    return PositionLogprobs(token, -(token + 1) / 10, token + 1, top)


class Engine:
    def __init__(self, *, log_sink: Callable[[str, str], None] | None = None) -> None:
        self._models: dict[str, _Model] = {}
        self._closed = False
        self._log = log_sink or (lambda level, message: None)

    def install_model(
        self,
        name: str,
        options: ModelOptions,
        *,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        if progress is not None:
            progress("weights", 1, 1)
        self._models[name] = _Model(name, options)
        self._log("info", f"installed {name}")

    def start_model(self, name: str) -> None:
        self._models[name].start()

    def stop_model(self, name: str, timeout: float | None = None) -> bool:
        self._models[name].close()
        return True

    def release_model(self, name: str) -> None:
        self._models.pop(name).close()

    def submit(
        self,
        model: str,
        *,
        prompt_token_ids: Any,
        sampling: SamplingParams,
        request_id: str = "",
        priority: int = 0,
        timeout: float | None = None,
        constraint: Any = None,
        lora_name: str = "",
        pooling: Any = None,
        media: Sequence[MediaInput] = (),
    ) -> Request:
        if constraint is not None or pooling is not None:
            raise Failure("the fake engine has no guided decoding, nor rows", "unsupported")
        if self._closed:
            raise Failure("the engine is closed", "invalid_state")
        for item in fields(sampling):
            value = getattr(sampling, item.name)
            if isinstance(value, float) and math.isnan(value):
                raise Refusal(f"{item.name} is nan")
        state = RequestState(
            request_id,
            list(prompt_token_ids),
            sampling,
            cached_tokens=prefix_hits,
            host_cached_tokens=host_hits,
        )
        state.lora_name = lora_name
        state.take_media(media)
        submitted_media.append(state.media)
        self._models[model].submit(state)
        return Request(state)

    def load_lora(self, model: str, name: str, path: str) -> None:
        self._models[model].load_lora(name, path)

    def unload_lora(self, model: str, name: str) -> None:
        self._models[model].unload_lora(name)

    def loras(self, model: str) -> list[LoraInfo]:
        return self._models[model].list_loras()

    def model_info(self, name: str) -> ModelInfo:
        return self._models[name].info

    def model_stats(self, name: str) -> ModelStats:
        return self._models[name].stats

    def models(self) -> list[str]:
        return list(self._models)

    def clear_prefix_cache(self, name: str) -> None:
        pass

    def close(self) -> None:
        self._closed = True
        for name in list(self._models):
            self.release_model(name)


def available_cpu_isas() -> list[str]:
    return ["toy"]


def describe_cpu() -> CpuInfo:
    return CpuInfo()


def describe_gpus() -> list[GpuInfo]:
    return [GpuInfo(), GpuInfo("cuda:1", "Old GPU", "7.5", 1 << 29, "it is too old")]
