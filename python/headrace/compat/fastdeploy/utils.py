"""FastDeploy's module path of `EngineError`, and of its and vLLM's parser of command lines."""

from headrace.errors import EngineError
from headrace.options.argument_parser import FlexibleArgumentParser

__all__ = ["EngineError", "FlexibleArgumentParser"]
