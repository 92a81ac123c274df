"""Writes the generated pages and sections: `python -m odradek_docs.generate` (`make gen`).

docs/docs_tests/test_generated.py holds them equal to their sources.
"""

from __future__ import annotations

from pathlib import Path

from odradek_docs import crd_reference, package_diagram, settings_reference
from odradek_docs.repository_links import ROOT

REFERENCE = ROOT / "docs" / "reference"
DESIGN = ROOT / "DESIGN.md"


def generated() -> dict[Path, str]:
    """Every file that is generated, or has a generated section, to its whole text."""
    pages = crd_reference.pages() | settings_reference.pages()
    files = {REFERENCE / name: text for name, text in pages.items()}
    files[DESIGN] = package_diagram.in_page(DESIGN.read_text())
    return files


def main() -> None:
    for path, text in generated().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
