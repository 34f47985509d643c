"""DashInfer's module path of `Engine`."""

from headrace.compat.allspark import engine as _engine
from headrace.compat.allspark.engine import *  # noqa: F403
from headrace.compat.allspark.engine import __getattr__ as __getattr__

__all__ = _engine.__all__  # with torch's names where torch is installed
