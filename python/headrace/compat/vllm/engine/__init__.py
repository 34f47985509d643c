"""vLLM's module paths of engines and their arguments, and beside them FastDeploy's: both have
them in a package of this name."""

from headrace.compat.fastdeploy import engine as _fastdeploys

__path__.extend(_fastdeploys.__path__)
