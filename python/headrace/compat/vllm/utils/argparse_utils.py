"""The newer module path of the same."""

from headrace.options.argument_parser import FlexibleArgumentParser

__all__ = ["FlexibleArgumentParser"]
