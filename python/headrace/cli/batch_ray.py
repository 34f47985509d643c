"""headrace batch --ray: the cluster, and how many engines it has room for."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.options import model_path
from headrace.cli.usage import UsageError

if TYPE_CHECKING:
    from headrace.ray.answerer import RayAnswerer


@contextlib.contextmanager
def ray_answerer(
    args: argparse.Namespace, options: Mapping[str, Any], names: Sequence[str], window: int
) -> Iterator[RayAnswerer]:
    """Engines on the cluster that --ray names, ended at the end.

    options: the LLM's. Raises UsageError if Ray isn't installed, or the cluster has no room.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("--ray needs Ray: pip install 'headrace[ray]'") from None
    from headrace.ray.answerer import RayAnswerer
    from headrace.ray.config import HeadraceConfig, device_count

    began = not ray.is_initialized()
    if began:
        ray.init(address=args.ray or None, log_to_driver=False, include_dashboard=False)
    try:
        path = model_path(args)
        on_gpus = str(options.get("device", "")).startswith("cuda")
        gpus = device_count(options) if on_gpus else 0
        cpus, room = _room([node for node in ray.nodes() if node["Alive"]], args.num_threads, gpus)
        count = room if args.ray_workers is None else args.ray_workers
        if not 1 <= count <= room:
            raise UsageError(
                f"--ray-workers must be from 1 to {room}, which the cluster has room for: each "
                f"engine takes {cpus} CPUs and {gpus} GPUs; got {count}"
            )
        config = HeadraceConfig(
            model=os.path.abspath(path) if os.path.isdir(path) else path,
            engine_kwargs=options,
            concurrency=count,
            num_cpus=cpus,
            num_gpus=gpus,
        )
        answerer = RayAnswerer(config, names, window)
        try:
            yield answerer
        finally:
            answerer.close()
    finally:
        if began:
            ray.shutdown()


def _room(nodes: Sequence[Mapping[str, Any]], threads: int | None, gpus: int) -> tuple[int, int]:
    """CPUs of each engine, and how many engines fit: by default one in each node, or one for each
    `gpus` GPUs of a node.

    nodes: as ray.nodes() has them.
    """
    sizes = [(int(n["Resources"].get("CPU", 0)), int(n["Resources"].get("GPU", 0))) for n in nodes]
    # CPUs of each node, and the engines that its GPUs are enough for.
    usable = [(cpu, gpu // gpus if gpus else 1) for cpu, gpu in sizes if cpu and gpu >= gpus]
    if not usable:
        return 1, 0
    cpus = threads or min(cpu // most for cpu, most in usable) or 1
    return cpus, sum(min(cpu // cpus, most) if gpus else cpu // cpus for cpu, most in usable)
