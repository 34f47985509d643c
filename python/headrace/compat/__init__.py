"""Scripts written for FastDeploy or DashInfer, run unchanged.

    python -m headrace.compat script.py [arguments]

`import fastdeploy`, `import dashinfer` and imports from their modules are served by headrace, in
the script and in the Python processes that it starts. `install()` does the same inside a running
program. fastdeploy/ has FastDeploy's module paths; DashInfer's are those of headrace.allspark.
"""

from headrace.compat.aliases import install

__all__ = ["install"]
