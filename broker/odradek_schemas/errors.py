"""Errors of the registry client. They name the URL, the subject or the id, and no credential."""

from __future__ import annotations


class SchemasError(Exception):
    """Any error of this package."""


class SettingsError(SchemasError):
    """The settings of a registry are wrong; the text names the setting."""


class LibraryMissingError(SchemasError):
    """The library of a format is not installed; the text says how to get it."""

    def __init__(self, kind: str, library: str) -> None:
        super().__init__(
            f"{kind} needs the Python package {library}: pip install 'odradek[schemas]'"
        )


class RegistryError(SchemasError):
    """The registry does not answer, or refuses. `status` is HTTP's, `code` the registry's own."""

    def __init__(self, message: str, *, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class SchemaNotFoundError(RegistryError):
    """There is no such id, subject or version."""


class BadRecordError(SchemasError):
    """A record's bytes, or a value to be written, do not fit; asking again changes nothing."""
