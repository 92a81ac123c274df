"""mkdocs' hooks of the site: files outside docs/ that pages link to become pages (see
`repository_links.py`). mkdocs loads this file by its path and calls the functions by their names.
"""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from odradek_docs.repository_links import (
    PICTURES,
    ROOT,
    for_site,
    included_files,
    page_text,
    repository_path,
    site_path,
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path in included_files():
        uri = str(site_path(path))
        if path.suffix in PICTURES:
            files.append(File.generated(config, uri, content=(ROOT / path).read_bytes()))
        else:
            files.append(File.generated(config, uri, content=page_text(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    return for_site(repository_path(page.file.src_uri), markdown)
