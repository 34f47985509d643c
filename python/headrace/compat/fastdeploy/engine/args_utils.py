"""FastDeploy's module path of the engine arguments."""

from headrace.options.engine_args import EngineArgs

__all__ = ["EngineArgs"]
