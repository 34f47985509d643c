"""What a chat template reads of what it is given."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=32)
def template_variables(template: str) -> frozenset[str]:
    """The names of the variables that a template reads. REQUIRES: it has been rendered before."""
    from jinja2 import meta

    from headrace.text.template_sandbox import TemplateSandbox

    return frozenset(meta.find_undeclared_variables(TemplateSandbox().parse(template)))
