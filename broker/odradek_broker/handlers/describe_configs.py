"""DescribeConfigs (32), v1–4: settings of topics, groups, brokers, loggers, client metrics.

An entry has the effective value, its source (topic, group, this broker, all brokers, file,
default) and on request all values that it would fall back to (synonyms) and its documentation.
Passwords are never shown. The broker resource "" has only the settings for all brokers. A resource
type that Kafka does not have fails the whole request.
"""

from collections.abc import Iterable

from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.handlers import broker_loggers
from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.messages import MALFORMED_REQUEST
from odradek_broker.metadata.records import ResourceType
from odradek_broker.model.client_metrics_configs import CLIENT_METRICS_CONFIGS
from odradek_broker.model.config_docs import documentation
from odradek_broker.model.config_table import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigKey
from odradek_broker.model.group_configs import GROUP_CONFIGS
from odradek_broker.runtime.settings import Settings, Synonym
from odradek_protocol.admin_codes import ConfigSource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

API_KEY = 32
VERSIONS = range(1, 5)
_TYPES = frozenset(ResourceType)


def handle(ctx: RequestContext, request: Struct) -> Struct:
    if any(resource.resource_type not in _TYPES for resource in request.resources):
        refused = KafkaError(ErrorCode.invalid_request, MALFORMED_REQUEST)
        return Struct(results=[_refusal(resource, refused) for resource in request.resources])
    return Struct(results=[_resource(ctx, request, resource) for resource in request.resources])


def _resource(ctx: RequestContext, request: Struct, resource: Struct) -> Struct:
    kind, name = resource.resource_type, resource.resource_name
    try:
        if kind == ResourceType.TOPIC:
            entries = list(_topic_entries(ctx, name))
        elif kind == ResourceType.BROKER:
            entries = list(_broker_entries(ctx, name))
        elif kind == ResourceType.GROUP:
            entries = list(_group_entries(ctx, name))
        elif kind == ResourceType.CLIENT_METRICS:
            entries = list(_client_metrics_entries(ctx, name))
        else:
            return broker_loggers.describe(ctx.broker.node_id, resource)
    except KafkaError as error:
        return _refusal(resource, error)
    asked = resource.configuration_keys
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        resource_type=kind,
        resource_name=name,
        configs=[_shown(entry, request) for entry in entries if not asked or entry.name in asked],
    )


def _refusal(resource: Struct, error: KafkaError) -> Struct:
    return Struct(
        error_code=error.code,
        error_message=error.message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _shown(entry: Struct, request: Struct) -> Struct:
    if not request.include_synonyms:
        entry.synonyms = []
    if request.include_documentation:
        entry.documentation = documentation(entry.name)
    return entry


def _topic_entries(ctx: RequestContext, name: str) -> Iterable[Struct]:
    validate_topic_name(name)
    image = ctx.broker.controller.image
    if name not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    overrides = image.topic_config(name)
    settings = ctx.broker.settings
    for key in TOPIC_CONFIGS.values():
        synonyms = settings.synonyms(key)
        if key.name in overrides:
            text = key.text_of(key.parse(overrides[key.name]))
            synonyms.insert(0, Synonym(key.name, text or "", ConfigSource.DYNAMIC_TOPIC_CONFIG))
        elif key.internal:
            continue
        else:
            text = settings.topic_default_text(key)
        yield _entry(key.name, key, text, synonyms, read_only=False)


def _group_entries(ctx: RequestContext, name: str) -> Iterable[Struct]:
    """A group need not exist to have settings."""
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
    overrides = ctx.broker.controller.image.config(ResourceType.GROUP, name)
    for key in GROUP_CONFIGS.values():
        synonyms = ctx.broker.settings.values_given(*key.synonyms)
        if not synonyms:
            synonyms = [Synonym(key.name, key.default or "", ConfigSource.DEFAULT_CONFIG)]
        if key.name in overrides:
            text = key.text_of(key.parse(overrides[key.name]))
            synonyms.insert(0, Synonym(key.name, text or "", ConfigSource.GROUP_CONFIG))
        yield _entry(key.name, key, synonyms[0].text, synonyms, read_only=False)


def _client_metrics_entries(ctx: RequestContext, name: str) -> Iterable[Struct]:
    """A subscription that does not exist has the defaults."""
    if not name:
        raise KafkaError(
            ErrorCode.invalid_request, "Client metrics subscription name must not be empty"
        )
    own = ctx.broker.controller.image.config(ResourceType.CLIENT_METRICS, name)
    for key in CLIENT_METRICS_CONFIGS.values():
        text = key.text_of(key.parse(own.get(key.name, key.default)))
        synonyms = []
        if key.name in own:
            synonyms = [Synonym(key.name, text or "", ConfigSource.CLIENT_METRICS_CONFIG)]
        yield _entry(key.name, key, text, synonyms, read_only=False)


def _broker_entries(ctx: RequestContext, name: str) -> Iterable[Struct]:
    settings = ctx.broker.settings
    if name == "":
        for config_name, text in settings.dynamic_default.items():
            synonym = Synonym(config_name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            key = BROKER_CONFIGS.get(config_name)
            yield _entry(config_name, key, text, [synonym], read_only=False)
        return
    try:
        broker_id = int(name)
    except ValueError:
        reason = f"Broker id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.invalid_request, reason) from None
    if broker_id != ctx.broker.node_id:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, but "
            f"received {name}",
        )
    yield from _own_entries(settings)


def _own_entries(settings: Settings) -> Iterable[Struct]:
    for key in BROKER_CONFIGS.values():
        synonyms = settings.synonyms(key)
        is_set = bool(synonyms) and synonyms[0].source is not ConfigSource.DEFAULT_CONFIG
        if key.internal and not is_set:
            continue
        read_only = key.name not in _DYNAMIC
        yield _entry(key.name, key, settings.text(key.name), synonyms, read_only=read_only)
    for name in {**settings.static, **settings.dynamic_default, **settings.dynamic_broker}:
        if name not in BROKER_CONFIGS:
            yield _entry(name, None, None, settings.values_given(name), read_only=True)


_DYNAMIC = frozenset(k.name for k in BROKER_CONFIGS.values() if k.update.value != "ro")


def _entry(
    name: str,
    key: ConfigKey | None,
    text: str | None,
    synonyms: list[Synonym],
    *,
    read_only: bool,
) -> Struct:
    """A setting that is in no table may be a secret, so its value is not shown."""
    sensitive = key is None or key.sensitive
    return Struct(
        name=name,
        value=None if sensitive else text,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=sensitive,
        synonyms=[
            Struct(name=s.name, value=None if sensitive else s.text, source=s.source)
            for s in synonyms
        ],
        config_type=key.type if key is not None else 0,
        documentation=None,
    )
