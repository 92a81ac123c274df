"""Failures that a user can act on, and the exit code of each."""

from __future__ import annotations


class CliError(Exception):
    """One sentence for the user: the error, with the option, topic or file it is about."""

    exit_code = 1


class UsageError(CliError):
    """The command line asks for something that makes no sense, or needs --yes."""

    exit_code = 2


class StateError(CliError):
    """The requested state was not found; the exit code says how far off it is."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
