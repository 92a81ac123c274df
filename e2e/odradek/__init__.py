"""Odradek: Kafka from Python. `odradek.testing` is a Kafka for tests."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`__version__` is read from the installed package when it is asked for, which takes 20 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("odradek")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
