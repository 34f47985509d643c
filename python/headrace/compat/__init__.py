"""Scripts written for FastDeploy or DashInfer, run unchanged.

    python -m headrace.compat script.py [arguments]

`import fastdeploy`, `import dashinfer` and imports from their modules are served by headrace, in
the script and in the Python processes that it starts. `install()` does the same inside a running
program. fastdeploy/ has FastDeploy's module paths; allspark/ is what headrace.allspark, and so
dashinfer.allspark, is made of.
"""

from headrace.compat.aliases import install

__all__ = ["install"]
