"""A server over a model that is played, on a socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from model_folders import byte_level_folder

from headrace import CompletionOutput, RequestOutput, SamplingParams
from headrace.llm.outputs import Logprob, RequestMetrics
from headrace.server import ModelRegistry, ServerConfig, create_app
from headrace.server.slow_headers import timed_protocol
from headrace.text.templates.messages import parse_messages
from headrace.text.tokenizer import load_tokenizer

PROMPT_IDS = [1, 2, 3, 4, 5]


class PlayedLLM:
    """AsyncLLM's methods. Answers with `pieces`, an increment and a token each.

    pieces: texts, dicts of CompletionOutput's fields, or exceptions to raise. seconds: before each
    piece; `held` stops all of them. error: the code and message of a request that fails, after as
    many pieces as `fails_after`.
    """

    def __init__(
        self,
        pieces: list[Any] | None = None,
        *,
        seconds: float = 0.0,
        error: tuple[int, str] | None = None,
        fails_after: int = 0,
        finish_reason: str = "stop",
        stop_reason: Any = None,
        folder: Path | None = None,
        vision: bool = False,
    ) -> None:
        self.pieces = ["Hello", " there", "!"] if pieces is None else pieces
        self.seconds = seconds
        self.error = error
        self.fails_after = fails_after
        self.ends = {"finish_reason": finish_reason, "stop_reason": stop_reason}
        self.calls: list[dict[str, Any]] = []
        self.running = self.most_running = self.cancelled = self.finished = 0
        self.closed = self.held = False
        self.metrics: RequestMetrics | None = None  # of each piece
        self.counters = {"running_replicas": 1}
        self.model_info = SimpleNamespace(
            max_model_len=4096,
            vocab_size=512,
            generates=True,
            vision=vision,
            family="played",
            device="cpu",
            dtype="bfloat16",
            quantization="",
            num_parameters=1_500_000,
            weight_bytes=3_000_000,
            hidden_size=64,
            intermediate_size=128,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
        )
        self.chat_sampling = {"temperature": 0.3, "min_p": 0.1}
        self.chat_template: str | None = None
        self._tokenizer = None if folder is None else load_tokenizer(folder)

    @classmethod
    async def load(cls, model: str, **options: Any) -> PlayedLLM:
        if "broken" in model:
            raise ValueError("the folder has no config.json")
        return cls([f"I am {model}"])

    def chat(self, messages: Any, sampling_params: SamplingParams, **others: Any) -> Any:
        return _Updates(self._run, {"messages": messages, "params": sampling_params, **others})

    def generate(self, prompt: Any, sampling_params: SamplingParams, **others: Any) -> Any:
        return _Updates(self._run, {"prompt": prompt, "params": sampling_params, **others})

    async def _run(self, call: dict[str, Any]) -> AsyncIterator[RequestOutput]:
        self.calls.append(call)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            for place, piece in enumerate(self.pieces):
                await asyncio.sleep(self.seconds)
                while self.held:
                    await asyncio.sleep(0.01)
                if isinstance(piece, Exception):
                    raise piece
                if self.error and place >= self.fails_after:
                    yield self._failed()
                    return
                for index in range(call["params"].n):
                    yield self._update(call, piece, index, place == len(self.pieces) - 1)
            self.finished += 1
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def _update(self, call: dict[str, Any], piece: Any, index: int, last: bool) -> RequestOutput:
        fields = {"text": piece} if isinstance(piece, str) else piece
        output = CompletionOutput(**{"index": index, "token_ids": [7], **fields})
        if call["params"].logprobs is not None:
            row = {7: Logprob(-0.5, 1, output.text), 8: Logprob(-1.5, 2, "x")}
            output.logprobs = [row] * len(output.token_ids)
        if last:
            output.finish_reason = self.ends["finish_reason"]
            output.stop_reason = self.ends["stop_reason"]
        return RequestOutput(
            "r",
            prompt_token_ids=PROMPT_IDS,
            outputs=output,
            finished=last,
            metrics=self.metrics,
            num_cached_tokens=2,
        )

    def _failed(self) -> RequestOutput:
        code, message = self.error or (500, "")
        output = CompletionOutput(finish_reason="error")
        return RequestOutput("r", outputs=output, finished=True, error_code=code, error_msg=message)

    def get_tokenizer(self) -> Any:
        return self._tokenizer

    def conversation_ids(
        self,
        messages: Any,
        *,
        tools: Any,
        chat_template_kwargs: dict[str, Any],
        add_special_tokens: bool,
    ) -> Any:
        text = self._tokenizer.apply_chat_template(
            parse_messages(messages), tools=tools, tokenize=False, **chat_template_kwargs
        )
        return self._tokenizer.encode(text, add_special_tokens)

    def stats(self) -> Any:
        class Counters:
            def __getattr__(self, name: str) -> int:
                return numbers.get(name, 0)

        numbers = self.counters
        return Counters()

    async def close(self) -> None:
        self.closed = True


class _Updates:
    """What AsyncLLM's calls give."""

    def __init__(self, run: Any, call: dict[str, Any]) -> None:
        self._updates = run(call)
        self.notes: list[str] = []

    def __aiter__(self) -> Any:
        return self._updates

    async def results(self) -> list[RequestOutput]:
        outputs: dict[int, RequestOutput] = {}
        async for update in self._updates:
            index = update.outputs.index
            if index in outputs:
                outputs[index].accumulate(update)
            else:
                outputs[index] = update
        return [outputs[index] for index in sorted(outputs)]

    async def aclose(self) -> None:
        await self._updates.aclose()


@contextlib.contextmanager
def serving(
    llm: Any = None, name: str = "m", header_seconds: float = 30.0, **config: Any
) -> Iterator[str]:
    """The base address of a server with the one model `name`."""
    registry = ModelRegistry(PlayedLLM.load)
    served = llm or PlayedLLM()

    async def load(**_: Any) -> Any:
        return served

    registry._load = load  # the first model is the test's
    app = None
    started = threading.Event()
    bound = socket.create_server(("127.0.0.1", 0))
    server: Any = None

    async def main() -> None:
        nonlocal app, server
        await registry.load(name)
        registry._load = PlayedLLM.load
        app = create_app(ServerConfig(**config), registry)
        server = uvicorn.Server(
            uvicorn.Config(
                app, http=timed_protocol(header_seconds), ws="none", lifespan="on", log_config=None
            )
        )
        started.set()
        await server.serve(sockets=[bound])

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert started.wait(10)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
        assert not thread.is_alive()


def tokenizer_folder(parent: Path) -> Path:
    return byte_level_folder(parent)


def events(text: str) -> list[tuple[str | None, Any]]:
    """The name and the object of each server-sent event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if "data" in fields:
            data = fields["data"]
            found.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
    return found
