"""vLLM's engines: LLM and AsyncLLM behind its methods."""
