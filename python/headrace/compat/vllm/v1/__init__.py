"""vLLM's module path of its engine."""
