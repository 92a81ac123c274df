"""The blocks of pages that are marked as runnable do what the pages say."""

from pathlib import Path

import pytest

from odradek_docs.blocks import MarkError, blocks_of
from odradek_docs.repository_links import ROOT
from odradek_docs.run_blocks import BlockError, check_manifests, pages_with_blocks, run_page

PAGE = """
<!-- run until "ready" -->
```sh
serve
```
<!-- output -->
```
ready
```
<!-- run as KafkaCluster -->
```yaml
spec: {brokers: 3}
```
```sh
not marked
```
"""


def test_marked_blocks_are_found() -> None:
    serve, output, manifest = blocks_of("p.md", PAGE)
    assert (serve.verb, serve.until, serve.text, serve.line) == ("run", "ready", "serve\n", 4)
    assert (output.verb, output.text) == ("output", "ready\n")
    assert (manifest.kind, manifest.language) == ("KafkaCluster", "yaml")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- run -->\nno block\n",
        "<!-- run -->\n```python\n1\n```\n",
        "<!-- file -->\n```\n1\n```\n",
    ],
)
def test_a_mark_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(MarkError):
        blocks_of("p.md", text)


def test_a_manifest_with_a_wrong_field_fails() -> None:
    (block,) = blocks_of("p.md", "<!-- run as Topic -->\n```yaml\nspec: {partitons: 3}\n```\n")
    with pytest.raises(BlockError, match="did you mean partitions"):
        check_manifests(block)


def _page(page: Path) -> object:
    """README and pages with manifests only are quick; the others start the command dozens of times
    (`make docs-check` runs all)."""
    blocks = blocks_of(page.name, page.read_text())
    quick = page.name == "README.md" or all(block.language == "yaml" for block in blocks)
    marks = [] if quick else [pytest.mark.long]
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [_page(page) for page in pages_with_blocks()])
def test_the_blocks_of_a_page_run(page: Path) -> None:
    run_page(page)
