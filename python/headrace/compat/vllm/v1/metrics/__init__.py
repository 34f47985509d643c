"""vLLM's module paths of numbers."""
