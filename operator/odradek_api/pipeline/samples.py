"""Tests of a pipeline's steps, in its manifest: rows of the sources, and the rows that follow."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from odradek_api.base import FreeForm, NonEmpty, Spec

ROWS_MAX = 1000


class SampleTest(Spec, frozen=True, kw_only=True):
    """`odradek pipeline test` runs the steps on these rows and compares; a run ignores them."""

    name: Annotated[NonEmpty, Meta(max_length=100, description="What is tested.")]
    rows: Annotated[
        FreeForm,
        Meta(
            description="Rows of each source, by its name: {visits: [{page: /, at: "
            '"2026-11-16T12:00:00Z"}]}. A source that is not named has none. Default: none.'
        ),
    ] = field(default_factory=dict)
    expect: Annotated[
        list[FreeForm],
        Meta(
            max_length=ROWS_MAX,
            description="Rows of the last step, in any order. Columns that no row names are not "
            "compared. Default: none; there must be no rows.",
        ),
    ] = field(default_factory=list)
