"""The quickstart manifests: `odradek local demo` runs them, `odradek local quickstart` writes them.

They are examples/quickstart in a checkout; the wheel carries a copy in this package.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from odradek_cli.errors import CliError
from odradek_cli.output import remarks

IN_WHEEL = Path(__file__).parent / "quickstart"
QUICKSTART = IN_WHEEL if IN_WHEEL.is_dir() else Path(__file__).parents[2] / "examples/quickstart"


def quickstart(
    directory: Annotated[Path, typer.Argument(help="It is created; its files are not replaced.")],
) -> None:
    """Write manifests to begin with: a cluster of six brokers in three racks, two topics."""
    directory.mkdir(parents=True, exist_ok=True)
    for source in sorted(QUICKSTART.glob("*.yaml")):
        target = directory / source.name
        if target.exists():
            raise CliError(f"{target} exists already; name a new directory")
        shutil.copyfile(source, target)
        print(target)
    remarks().print(f"Start it: odradek local up --detach -f {directory}", soft_wrap=True)
