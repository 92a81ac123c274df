"""Links between the pages of docs/ and the rest of the repository, for the site.

In the repository every link is a relative path, so that it works in any viewer of files. The site
has only docs/, so a linked file outside it (an ADR, DESIGN.md, a manifest) becomes a page of
the site as well: `../broker/SKIPPED.md` is served as `repository/broker/SKIPPED.md`, and a file
that is not Markdown as a page with its text. Pictures are copied.

Called by `hooks.py`; `docs_tests/test_links.py` follows every link of the repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
DOCS = PurePosixPath("docs")
INCLUDED = PurePosixPath("repository")
PICTURES = (".png", ".svg", ".jpg")

# [text](target#anchor): not an address, not an anchor of the same page, no title.
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".sh": "sh"}


def links(text: str) -> Iterator[re.Match[str]]:
    """The relative links of a Markdown text, code left out."""
    return LINK.finditer(without_code(text))


def without_code(text: str) -> str:
    """The text with its code blocks and code spans blanked, every other character in place."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return _CODE.sub(blank, _FENCE.sub(blank, text))


def target_of(page: PurePosixPath, link: str) -> PurePosixPath:
    """The page or file that a link of `page` names; both paths are relative to the repository."""
    return PurePosixPath(os.path.normpath(page.parent / link))


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Where a file of the repository is in the site's own tree of sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    included = INCLUDED / path
    if path.suffix in PICTURES or path.suffix == ".md":
        return included
    return included.with_name(included.name + ".md")


def repository_path(src_uri: str) -> PurePosixPath:
    """The file of the repository behind a page of the site."""
    path = PurePosixPath(src_uri)
    if not path.is_relative_to(INCLUDED):
        return DOCS / path
    outside = path.relative_to(INCLUDED)
    without_md = outside.with_suffix("")
    return without_md if (ROOT / without_md).exists() else outside


def included_files() -> list[PurePosixPath]:
    """Every file outside docs/ that a page links to, directly or through other such files."""
    found: dict[PurePosixPath, None] = {}
    pages = [PurePosixPath(p.relative_to(ROOT)) for p in sorted((ROOT / DOCS).rglob("*.md"))]
    while pages:
        page = pages.pop()
        for link in links((ROOT / page).read_text()):
            target = target_of(page, link["target"])
            if target in found or target.is_relative_to(DOCS) or not (ROOT / target).exists():
                continue
            found[target] = None
            if target.suffix == ".md":
                pages.append(target)
    return list(found)


def page_text(path: PurePosixPath) -> str:
    """The Markdown of an included file: its own, or its text as a code block."""
    target = ROOT / path
    if target.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in target.iterdir() if p.name[0] not in "._")
        return f"# `{path}/`\n\nA directory of the repository:\n\n" + "".join(
            f"- `{name}`\n" for name in names
        )
    text = target.read_text()
    if path.suffix == ".md":
        return text
    return f"# `{path}`\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"


def for_site(page: PurePosixPath, text: str) -> str:
    """The text of a page with its links as the site needs them."""
    own = site_path(page)
    parts, end = [], 0
    for link in links(text):
        target = target_of(page, link["target"])
        if (ROOT / target).exists():
            to = os.path.relpath(site_path(target), own.parent)
            parts += [text[end : link.start("target")], to]
            end = link.end("target")
    # In a table GitHub needs `a\\|b` for a bar in code; Python's Markdown shows the backslash.
    return _CODE.sub(lambda span: span[0].replace("\\|", "|"), "".join(parts) + text[end:])
