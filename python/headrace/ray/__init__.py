"""Headrace on a Ray cluster (`pip install "headrace[ray]"`): datasets, services, batch jobs.

`build_processor` answers the rows of a Ray dataset, `serve_app` is `headrace serve` as a Ray Serve
application, and `headrace batch --ray` answers a file. Importing this doesn't import Ray.
"""

from headrace.ray.config import HeadraceConfig
from headrace.ray.processor import Processor, build_processor
from headrace.ray.serving import serve_app

__all__ = ["HeadraceConfig", "Processor", "build_processor", "serve_app"]
