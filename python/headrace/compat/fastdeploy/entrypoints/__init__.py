"""FastDeploy's module path of the `LLM` class."""
