"""vLLM's module path of the engine that a script steps."""
