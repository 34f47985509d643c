"""vLLM's module path of what frees a deleted LLM's memory."""

import gc
import warnings


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """An LLM that nobody holds any more gives its memory back by itself."""
    if shutdown_ray:
        warnings.warn("shutdown_ray=True has no effect: no LLM starts Ray", stacklevel=2)
    gc.collect()


__all__ = ["cleanup_dist_env_and_memory"]
