"""Every relative link, and every path in code, of every Markdown file leads to a file."""

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from odradek_docs.named_paths import missing
from odradek_docs.repository_links import (
    ROOT,
    for_site,
    links,
    repository_path,
    site_path,
    target_of,
)

PAGES = [
    PurePosixPath(page.relative_to(ROOT))
    for folder in ("docs", "broker", "operator", "spark-on-k8s", "examples", "bench", "charts")
    for page in sorted((ROOT / folder).rglob("*.md"))
    if "tests" not in page.parent.name
] + [PurePosixPath(page.name) for page in sorted(ROOT.glob("*.md"))]
# ADRs and the changelog tell of the past: what they name may be gone.
PRESENT = [page for page in PAGES if "adr" not in page.parts and page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files(page: PurePosixPath) -> None:
    broken = [
        link["target"]
        for link in links((ROOT / page).read_text())
        if not (ROOT / target_of(page, link["target"])).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PRESENT, ids=str)
def test_paths_that_are_named_exist(page: PurePosixPath) -> None:
    assert not list(missing(ROOT / page))


def test_bars_in_code_are_not_escaped_on_the_site() -> None:
    assert for_site(PurePosixPath("docs/index.md"), r"| `a\|b` | a \| b |") == r"| `a|b` | a \| b |"


def test_links_out_of_docs_lead_to_included_pages() -> None:
    page = PurePosixPath("docs/how-to/configure.md")
    text = "[a](../../broker/SKIPPED.md#x) [b](run-a-broker.md) `[c](../none.md)` [d](#here)"
    assert for_site(page, text) == (
        "[a](../repository/broker/SKIPPED.md#x) [b](run-a-broker.md) `[c](../none.md)` [d](#here)"
    )


@pytest.mark.parametrize("name", ["docs/index.md", "DESIGN.md", "crds/odradek.dev_topics.yaml"])
def test_a_page_of_the_site_knows_its_file(name: str) -> None:
    path = PurePosixPath(name)
    assert repository_path(str(site_path(path))) == path


def test_the_site_builds(tmp_path: Path) -> None:
    """Strict: a broken link, a missing anchor or a page that is not in the navigation fails."""
    # Not -q: mkdocs counts only the warnings that it would print.
    config = str(ROOT / "docs/odradek_docs/mkdocs.yml")
    command = [str(ROOT / ".venv/bin/mkdocs"), "build", "-f", config, "-d", str(tmp_path / "site")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    home = (tmp_path / "site/index.html").read_text()
    assert "fonts.googleapis" not in home
