"""Failures that a user can act on."""

from __future__ import annotations


class CliError(Exception):
    """One sentence for the user: what failed, and which option, topic or file it is about."""
