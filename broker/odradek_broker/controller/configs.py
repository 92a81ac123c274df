"""Decisions about configurations: of topics, groups, client metrics, and brokers (one, or all).

AlterConfigs replaces all settings of a resource; IncrementalAlterConfigs changes single
names (SET, DELETE, and APPEND, SUBTRACT for lists). A resource changes as a whole or not at all.
Checks and error messages are Apache Kafka's.
"""

from collections import Counter
from collections.abc import Mapping

from odradek_broker.controller.result import ControllerResult
from odradek_broker.controller.topic_names import validate_topic_name
from odradek_broker.metadata.image import ConfigResource, MetadataImage
from odradek_broker.metadata.records import ConfigRecord, MetadataRecord, ResourceType
from odradek_broker.model.client_metrics_configs import (
    CLIENT_METRICS_CONFIGS,
    validate_client_metrics_configs,
)
from odradek_broker.model.config_table import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigError,
    ConfigKey,
    ConfigType,
    UpdateMode,
    parse_topic_configs,
)
from odradek_broker.model.group_configs import validate_group_configs
from odradek_broker.runtime.settings import Settings
from odradek_protocol.admin_codes import ConfigOperation, ConfigSource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

# -- topics -----------------------------------------------------------------------------------


def validate_topic_configs(settings: Settings, configs: Mapping[str, str]) -> None:
    """Raises ConfigError unless these are valid settings of a topic, given the defaults."""
    values = parse_topic_configs(configs)
    if values.get("remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
    config = settings.log_config(configs)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms "
            f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
            f"({config.max_compaction_lag_ms})"
        )


def default_topic_configs(settings: Settings) -> dict[str, Struct]:
    """All settings of a topic without overrides, for the response of CreateTopics (KIP-525)."""
    return {
        name: _config_entry(
            key, settings.topic_default_text(key), settings.topic_default_source(key)
        )
        for name, key in sorted(TOPIC_CONFIGS.items())
        if not key.internal
    }


def effective_topic_configs(
    defaults: Mapping[str, Struct], overrides: Mapping[str, str]
) -> list[Struct]:
    entries = dict(defaults)
    for name, value in overrides.items():
        entries[name] = _config_entry(TOPIC_CONFIGS[name], value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return list(entries.values())


def _config_entry(key: ConfigKey, value: str | None, source: ConfigSource) -> Struct:
    return Struct(
        name=key.name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=key.sensitive,
    )


# -- IncrementalAlterConfigs, AlterConfigs ----------------------------------------------------


def incremental_alter_configs(
    image: MetadataImage, request: Struct, settings: Settings
) -> ControllerResult[Struct]:
    return _alter(image, request, settings, incremental=True)


def alter_configs(
    image: MetadataImage, request: Struct, settings: Settings
) -> ControllerResult[Struct]:
    return _alter(image, request, settings, incremental=False)


def _alter(
    image: MetadataImage, request: Struct, settings: Settings, *, incremental: bool
) -> ControllerResult[Struct]:
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    records: list[MetadataRecord] = []
    answers = []
    for resource in request.resources:
        code, message = ErrorCode.none, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _invalid_request("Each resource must appear at most once.")
            records += _alter_resource(image, resource, settings, incremental=incremental)
        except KafkaError as error:
            code, message = error.code, error.message
        answers.append(
            Struct(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return ControllerResult([] if request.validate_only else records, Struct(responses=answers))


def _alter_resource(
    image: MetadataImage, asked: Struct, settings: Settings, *, incremental: bool
) -> list[ConfigRecord]:
    _check_names_and_nulls(asked, incremental=incremental)
    if asked.resource_type == ResourceType.TOPIC:
        resource = ConfigResource(ResourceType.TOPIC, asked.resource_name)
        _check_topic_name(asked.resource_name)
    elif asked.resource_type == ResourceType.BROKER:
        resource = ConfigResource(ResourceType.BROKER, asked.resource_name)
        _check_broker_name(asked.resource_name, settings.node_id, image)
    elif asked.resource_type == ResourceType.GROUP:
        resource = ConfigResource(ResourceType.GROUP, asked.resource_name)
        if not asked.resource_name:
            raise _invalid_request("Default group resources are not allowed.")
    elif asked.resource_type == ResourceType.CLIENT_METRICS:
        resource = ConfigResource(ResourceType.CLIENT_METRICS, asked.resource_name)
        if not asked.resource_name:
            raise _invalid_request("Subscription name can't be empty")
    else:
        raise _invalid_request(f"Unknown resource type {asked.resource_type}")
    before = image.configs.get(resource, {})
    if incremental:
        after = _apply_operations(resource, asked, before)
    else:
        after = {config.name: config.value for config in asked.configs}
    _validate(image, resource, after, settings)
    named = {config.name for config in asked.configs}
    return [
        ConfigRecord(resource.type, resource.name, name, after.get(name))
        for name in sorted({*before, *after} if not incremental else named)
        if before.get(name) != after.get(name)
    ]


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def _check_names_and_nulls(asked: Struct, *, incremental: bool) -> None:
    names = [config.name for config in asked.configs]
    if len(set(names)) != len(names):
        raise _invalid_request("Error due to duplicate config keys")
    nulls = [
        config.name
        for config in asked.configs
        if config.value is None
        and not (incremental and config.config_operation == ConfigOperation.DELETE)
    ]
    if nulls:
        raise _invalid_request(f"Null value not supported for : {', '.join(nulls)}")


def _check_topic_name(name: str) -> None:
    if not name:
        raise _invalid_request("Default topic resources are not allowed.")
    validate_topic_name(name)


def _check_broker_name(name: str, node_id: int, image: MetadataImage) -> None:
    """Accepts any registered broker; the error names this one, like Kafka's."""
    if not name:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise _invalid_request(f"Node id must be an integer, but it is: {name}") from None
    if broker_id != node_id and broker_id not in image.brokers:
        raise _invalid_request(f"Unexpected broker id, expected {node_id}, but received {name}")


def _apply_operations(
    resource: ConfigResource, asked: Struct, before: Mapping[str, str]
) -> dict[str, str]:
    after = dict(before)
    for config in asked.configs:
        name, operation, value = config.name, config.config_operation, config.value
        if operation == ConfigOperation.SET:
            after[name] = value
        elif operation == ConfigOperation.DELETE:
            after.pop(name, None)
        elif operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            key = _list_key(resource, name, ConfigOperation(operation))
            old = [part for part in (after.get(name, key.default) or "").split(",") if part]
            parts = value.split(",")
            if operation == ConfigOperation.APPEND:
                after[name] = ",".join(dict.fromkeys([*old, *parts]))
            else:
                after[name] = ",".join(part for part in old if part not in parts)
        else:
            raise _invalid_request(f"Unknown operations type {operation}")
    return after


def _list_key(resource: ConfigResource, name: str, operation: ConfigOperation) -> ConfigKey:
    if resource.type is not ResourceType.BROKER:
        # No setting of a group is a list.
        tables = {
            ResourceType.TOPIC: TOPIC_CONFIGS,
            ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
        }
        key = tables.get(resource.type, {}).get(name)
        refusal = f"Can't {operation.name} to key {name} because its type is not LIST."
    else:
        key = BROKER_CONFIGS.get(name)
        verb = operation.name.lower()
        refusal = f"Config value {verb} is not allowed for config key: {name}"
        if key is None:
            refusal = f"Unknown config name: {name}"
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.invalid_config, refusal)
    return key


def _validate(
    image: MetadataImage, resource: ConfigResource, after: Mapping[str, str], settings: Settings
) -> None:
    if resource.type is ResourceType.TOPIC:
        try:
            validate_topic_configs(settings, after)
        except ConfigError as error:
            raise KafkaError(ErrorCode.invalid_config, str(error)) from None
        if resource.name not in image.topics:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"The topic '{resource.name}' does not exist.",
            )
        return
    if resource.type is ResourceType.GROUP:  # which need not exist
        try:
            validate_group_configs(after, settings.int)
        except ConfigError as error:
            raise KafkaError(ErrorCode.invalid_config, str(error)) from None
        return
    if resource.type is ResourceType.CLIENT_METRICS:
        try:
            validate_client_metrics_configs(after)
        except ConfigError as error:
            raise KafkaError(ErrorCode.invalid_config, str(error)) from None
        return
    try:
        _validate_broker_configs(image, resource, after, settings)
    except ConfigError as error:
        raise _invalid_request(str(error)) from None


def _validate_broker_configs(
    image: MetadataImage, resource: ConfigResource, after: Mapping[str, str], settings: Settings
) -> None:
    """Unknown names are accepted as they are: in Kafka they belong to plugins."""
    keys = [BROKER_CONFIGS[name] for name in sorted(after) if name in BROKER_CONFIGS]
    fixed = [key.name for key in keys if key.update is UpdateMode.READ_ONLY]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    secure = [key.name for key in keys if key.name.startswith(("ssl.", "sasl."))]
    if secure:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: [{', '.join(secure)}]"
        )
    for name, text in after.items():
        key = BROKER_CONFIGS.get(_without_listener_prefix(name))
        if key is not None:
            key.parse(text)
    own = [key.name for key in keys if key.update is UpdateMode.PER_BROKER]
    if own and not resource.name:
        raise ConfigError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(own)}]"
        )
    default, broker = broker_layers(image, settings.node_id)
    if resource.name:
        settings.check_dynamic(default, after)
    else:
        settings.check_dynamic(after, broker)


def _without_listener_prefix(name: str) -> str:
    """`listener.name.external.max.connections` → `max.connections`."""
    if name.startswith("listener.name."):
        return name.split(".", 3)[-1]
    return name


def broker_layers(
    image: MetadataImage, node_id: int
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The settings for all brokers, overridden by those for this one."""
    default = image.config(ResourceType.BROKER, "")
    return default, image.config(ResourceType.BROKER, str(node_id))
