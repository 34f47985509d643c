"""DashInfer's package, which has nothing but `allspark` (see headrace.allspark)."""

__all__: list[str] = []
