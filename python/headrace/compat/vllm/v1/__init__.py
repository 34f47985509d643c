"""vLLM's module paths of its engines, and of their numbers."""
