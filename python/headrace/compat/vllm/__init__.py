"""vLLM's module paths that offline scripts import from, below `headrace`."""
