"""vLLM's module paths of its engines."""
