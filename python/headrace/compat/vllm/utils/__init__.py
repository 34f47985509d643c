"""vLLM's module path of its parser of command lines, which is FastDeploy's, too."""

from headrace.errors import EngineError
from headrace.options.argument_parser import FlexibleArgumentParser

__all__ = ["EngineError", "FlexibleArgumentParser"]
