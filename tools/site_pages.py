"""A hook of mkdocs: the site has the repository's pages at their own places, so that the links
between them hold on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/lab/*.md",
    "docs/images/*",
    "examples/*/README.md",
    "third_party/README.md",
)


def on_files(files: Files, config: Any) -> Files:
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files
