"""Imports kio without hypothesis.

kio registers hypothesis strategies for its types whenever hypothesis is installed, which costs
a broker started from a development environment 350 ms and 17 MB. While kio's base module is
imported for the first time, this module makes hypothesis look absent. It does nothing in a process
that has imported hypothesis already (a test run).

Imported by the package's `__init__.py`, so it runs before any of our modules can import kio.
"""

import sys


def import_kio() -> None:
    if "hypothesis" in sys.modules or "kio.static._phantom" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # `import hypothesis` fails
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]


import_kio()
