"""Generated pages equal what their sources say (`make gen` writes them)."""

from pathlib import Path

import pytest

from odradek_docs.generate import generated
from odradek_docs.repository_links import ROOT

FILES = generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_generated_page_is_current(path: Path) -> None:
    assert path.read_text() == FILES[path], f"run `make gen`: {path.relative_to(ROOT)} is stale"


def test_every_resource_and_both_kinds_of_settings_have_a_page() -> None:
    assert {path.name for path in FILES} == {
        "kafkacluster.md",
        "topic.md",
        "kafkarebalance.md",
        "kafkauser.md",
        "sparkpipeline.md",
        "broker-settings.md",
        "topic-settings.md",
        "DESIGN.md",
    }
