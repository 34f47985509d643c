"""A script, run on the aliases."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from headrace.compat.aliases import install


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Runs a script as __main__; its exit status. Tracebacks start at the script."""
    try:
        with io.open_code(str(Path(script).absolute())) as file:
            source = file.read()
    except OSError as error:
        print(f"headrace.compat: cannot read {script}: {error.strerror}", file=sys.stderr)
        return 2
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    install()
    try:
        exec(compile(source, script, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frame of this function, which the script didn't write.
        own = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, own)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m headrace.compat script.py [arguments]", file=sys.stderr)
        return 0 if len(sys.argv) > 1 else 2
    return run_script(sys.argv[1], sys.argv[2:])
