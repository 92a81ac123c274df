"""A schema registry: where a source finds the schemas of its records, and a sink those to write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from msgspec import Meta, field

from odradek_api.base import FreeForm, NonEmpty, Spec

if TYPE_CHECKING:
    from odradek_api.pipeline.sinks import TopicSink
    from odradek_api.pipeline.sources import Source

READ, WRITTEN = ("avro", "json", "protobuf"), ("avro", "json", "protobuf")
USER_INFO, TOKEN, CA = "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location"
SETTINGS = (USER_INFO, TOKEN, CA)


class SchemaRegistry(Spec, frozen=True, kw_only=True):
    """A registry with Confluent's REST API."""

    url: Annotated[
        NonEmpty,
        Meta(description="Address, for example https://registry:8081. It contains no login."),
    ]
    config: Annotated[
        FreeForm,
        Meta(
            description="Login and trust, with Confluent's names: basic.auth.user.info "
            "(USER:PASSWORD), bearer.auth.token, ssl.ca.location (a PEM file). A value "
            "${env:NAME} is read from the environment of the driver and the executors. Default: "
            "no login, the system's certificates."
        ),
    ] = field(default_factory=dict)


def source_problems(at: str, source: Source) -> Iterator[tuple[str, str]]:
    form = source.format
    if form.type == "protobuf" and form.registry is None:
        yield f"{at}.format.registry", "protobuf needs a schema registry"
    if form.registry is None:
        return
    if form.type not in READ:
        yield f"{at}.format.registry", f"has no effect with type: {form.type}"
    if source.files is not None:
        yield f"{at}.format.registry", "is for records of topics, not for files"
    yield from _settings(f"{at}.format.registry", form.registry)


def sink_problems(at: str, sink: TopicSink) -> Iterator[tuple[str, str]]:
    """`at`: the field of the sink."""
    at = f"{at}.topic"
    if sink.value == "protobuf" and sink.registry is None:
        yield f"{at}.registry", "protobuf needs a schema registry"
    if sink.subject is not None and sink.registry is None:
        yield f"{at}.subject", "has no effect without a registry"
    if sink.registry is None:
        return
    if sink.value not in WRITTEN:
        yield f"{at}.registry", f"has no effect with value: {sink.value}"
    if sink.schema is not None:
        yield f"{at}.schema", "the subject in the registry has it: register it there"
    yield from _settings(f"{at}.registry", sink.registry)


def _settings(at: str, registry: SchemaRegistry) -> Iterator[tuple[str, str]]:
    parts = urlsplit(registry.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield f"{at}.url", "is not http://HOST:PORT or https://HOST:PORT"
    elif "@" in parts.netloc:
        yield f"{at}.url", f"contains a login: put it into config, as {USER_INFO}"
    for name, value in registry.config.items():
        if name not in SETTINGS:
            yield f"{at}.config[{name}]", f"is unknown; there are {', '.join(SETTINGS)}"
        elif not isinstance(value, str):
            yield f"{at}.config[{name}]", "must be a string"
    if USER_INFO in registry.config and TOKEN in registry.config:
        yield f"{at}.config", f"{USER_INFO} and {TOKEN} exclude each other"
    for name in (USER_INFO, TOKEN):
        value = registry.config.get(name)
        if isinstance(value, str) and not (value.startswith("${env:") and value.endswith("}")):
            yield f"{at}.config[{name}]", "is a secret: name a variable, as ${env:NAME}"
