"""vLLM's module path of what frees a deleted LLM's memory."""

import gc


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """An LLM that nobody holds any more gives its memory back by itself."""
    gc.collect()


__all__ = ["cleanup_dist_env_and_memory"]
