"""One sentence instead of a traceback for a command whose extra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odradek_cli.errors import CliError


@contextmanager
def needs_extra(extra: str, command: str) -> Iterator[None]:
    """Around the imports of packages that only `pip install 'odradek[extra]'` installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("odradek"):
            raise  # our own mistake
        raise CliError(f"`{command}` needs {error.name}: pip install 'odradek[{extra}]'") from None
