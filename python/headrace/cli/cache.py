"""headrace list, pull, rm: the models in the hub's cache."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from headrace.cli.usage import UsageError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "list",
        help="list the models in the hub's cache",
        description="Lists the models in the Hugging Face hub's cache (HF_HOME says where it is).",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(run=show)
    parser = commands.add_parser(
        "pull",
        help="fetch a model from the hub",
        description="Fetches a model into the hub's cache, and prints its folder.",
    )
    parser.add_argument("model", help="id on the hub, OWNER/NAME")
    parser.add_argument("--revision", default="master", help="branch, tag or commit")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(run=pull)
    parser = commands.add_parser(
        "rm",
        help="remove models from the hub's cache",
        description="Removes models from the hub's cache, with all their revisions.",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="id on the hub, OWNER/NAME")
    parser.add_argument("-y", "--yes", action="store_true", help="don't ask")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(run=remove)


def show(args: argparse.Namespace) -> int:
    repositories = _repositories()[1]
    for repository in sorted(repositories.values(), key=lambda one: str(one.repo_id)):
        print(f"{repository.repo_id}\t{repository.size_on_disk / 2**20:,.0f} MiB")
    if not repositories and sys.stderr.isatty():
        print("no model is in the cache; headrace pull OWNER/NAME fetches one", file=sys.stderr)
    return 0


def pull(args: argparse.Namespace) -> int:
    from headrace.hub import is_hub_id, resolve_model

    if not is_hub_id(args.model):
        raise UsageError(f"{args.model} is no id on the hub: it looks like OWNER/NAME")
    print(resolve_model(args.model, args.revision))
    return 0


def remove(args: argparse.Namespace) -> int:
    cache, repositories = _repositories()
    for name in args.models:
        if name not in repositories:
            raise UsageError(f"{name} is not in the cache; headrace list shows what is")
    chosen = [repositories[name] for name in dict.fromkeys(args.models)]
    plan = cache.delete_revisions(
        *(revision.commit_hash for one in chosen for revision in one.revisions)
    )
    size = f"{plan.expected_freed_size / 2**20:,.0f} MiB"
    if not args.yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this removes {size}: add --yes")
        if input(f"Remove {', '.join(args.models)} ({size})? [y/N] ").strip().lower() != "y":
            return 1
    plan.execute()
    print(f"removed {size}")
    return 0


def _repositories() -> tuple[Any, dict[str, Any]]:
    """The hub's cache, and the models there by their ids. Raises UsageError."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError as error:
        raise UsageError('this needs the extra "hub": pip install "headrace[hub]"') from error
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return None, {}
    return cache, {one.repo_id: one for one in cache.repos if one.repo_type == "model"}
