"""Failures that a user can act on, and the exit code of each."""

from __future__ import annotations


class CliError(Exception):
    """One sentence for the user: what failed, and which option, topic or file it is about."""

    exit_code = 1


class UsageError(CliError):
    """The command line asks for something that makes no sense, or needs --yes."""

    exit_code = 2


class StateError(CliError):
    """What was asked for is not in the state that counts as good; the exit code says how bad."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
