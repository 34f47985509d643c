"""Python reads this at its start where headrace.compat has put this folder into PYTHONPATH: in the
child processes of a script that runs on the aliases. They get the aliases as well."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _run_hidden() -> None:
    """The sitecustomize that Python would have read without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    from headrace.compat import install
except ImportError:  # another Python, without headrace
    pass
else:
    install()
_run_hidden()
