"""Schema registries of a job, on the driver and in the Python workers of executors.

Settings travel to executors as the spec has them: ${env:NAME} is replaced where it is used, so that
no login is in a plan, a log or a closure. A worker keeps its clients, and their schemas, while it
lives.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from odradek_api.pipeline.schema_registry import SchemaRegistry
from odradek_schemas import Client, Decoder, Encoder, Registry, SettingsError


class SourceRegistryError(RuntimeError):
    """Fails a task: the registry of a source does not answer (jobs/progress.py finds the name)."""


class SinkRegistryError(RuntimeError):
    """Fails a task: a row cannot be written with the schema of the sink."""


class Settings(NamedTuple):
    """A registry as the spec describes it; hashable, and without a secret."""

    url: str
    config: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, registry: SchemaRegistry) -> Settings:
        return cls(
            registry.url,
            tuple(sorted((name, str(value)) for name, value in registry.config.items())),
        )


@lru_cache(maxsize=16)
def client(settings: Settings) -> Client:
    """Errors are those of odradek_schemas and name the setting."""
    config = {name: _environment(name, value) for name, value in settings.config}
    return Client(Registry.of(settings.url, config))


@lru_cache(maxsize=16)
def decoder(settings: Settings) -> Decoder:
    return Decoder(client(settings))


@lru_cache(maxsize=64)
def encoder(settings: Settings, subject: str, version: int) -> Encoder:
    return Encoder.for_version(client(settings), subject, version)


def _environment(name: str, value: str) -> str:
    if not (value.startswith("${env:") and value.endswith("}")):
        return value
    found = os.environ.get(value[6:-1])
    if found is None:
        raise SettingsError(f"{name}: environment variable {value[6:-1]} is not set")
    return found
