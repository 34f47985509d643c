"""FastDeploy's module path of `EngineError`."""

from headrace.errors import EngineError

__all__ = ["EngineError"]
