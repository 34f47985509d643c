"""Runs Python snippets, each in a fork of this process, which has imported headrace for all.

Reads a line of JSON for each, {"code", "folder", "timeout"}, and answers with a line, its exit
status. In the folder are its stdin, and afterwards its stdout and stderr, as files of these names.
"""

import json
import os
import signal
import sys
import traceback
from types import ModuleType

import headrace.llm.async_llm
import headrace.llm.llm  # noqa: F401


def enter(folder: str) -> None:
    """Of the forked process: standard files, path and main module as of a fresh `python -c`."""
    os.chdir(folder)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC if descriptor else os.O_RDONLY
        os.dup2(os.open(name, flags, 0o600), descriptor)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = ModuleType("__main__")


def run(code: str) -> int:
    """Its exit status. What it leaves to the end of the program is done by leaving this one."""
    try:
        exec(compile(code, "<snippet>", "exec", dont_inherit=True), vars(sys.modules["__main__"]))
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    answers = os.dup(1)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.alarm(task["timeout"])
            os.close(answers)
            enter(task["folder"])
            return run(task["code"])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, f"{status}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
