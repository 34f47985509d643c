"""vLLM's module path of the engine arguments."""

from headrace.options.engine_args import EngineArgs

AsyncEngineArgs = EngineArgs

__all__ = ["AsyncEngineArgs", "EngineArgs"]
