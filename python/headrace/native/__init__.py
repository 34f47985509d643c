"""The engine itself: models by name, requests with token ids or text, results as they come.

    engine = headrace.Engine()
    engine.install_model("m", "path/to/model")
    engine.start_model("m")
    request = engine.submit("m", "Once upon a time", GenerationConfig(max_tokens=64))
    async for output in request.results():
        print(output.text, end="")

Same names and meanings as the C++ API (cpp/include/headrace). `LLM` is made of these parts. Every
method may be called from any thread, and the coroutines from any number of event loops.
"""

from headrace._core import (
    FinishReason,
    HeadraceError,
    LogprobsKind,
    LoraInfo,
    MediaInput,
    MediaRun,
    ModelInfo,
    ModelOptions,
    ModelState,
    ModelStats,
    OutOfBlocks,
    Pooling,
    PoolingParams,
    PositionLogprobs,
    RequestStats,
    RequestStatus,
    SpeculativeOptions,
)
from headrace.native.config import GenerationConfig
from headrace.native.engine import (
    Engine,
    LoadProgress,
    available_cpu_isas,
    describe_cpu,
    describe_gpus,
    describe_model,
)
from headrace.native.output import Output
from headrace.native.queue import ResultQueue
from headrace.native.request import Request
from headrace.native.selector import Selector

__all__ = [
    "Engine",
    "FinishReason",
    "GenerationConfig",
    "HeadraceError",
    "LoadProgress",
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
    "Pooling",
    "PoolingParams",
    "PositionLogprobs",
    "Request",
    "RequestStats",
    "RequestStatus",
    "ResultQueue",
    "Selector",
    "SpeculativeOptions",
    "available_cpu_isas",
    "describe_cpu",
    "describe_gpus",
    "describe_model",
]
