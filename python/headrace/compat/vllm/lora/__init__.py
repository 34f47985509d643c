"""vLLM's package of adapters."""
