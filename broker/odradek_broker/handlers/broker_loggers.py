"""Log levels as configuration (KIP-412): `kafka-configs --entity-type broker-loggers`.

Loggers are Python's, the names of levels are log4j's. `root` is the root logger. A logger whose
level is deleted inherits the level of its parent again.
"""

import logging

from odradek_protocol.admin_codes import ConfigOperation, ConfigSource
from odradek_protocol.error_codes import ErrorCode, KafkaError
from odradek_protocol.messages.struct import Struct

ROOT = "root"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


def describe(node_id: int, resource: Struct) -> Struct:
    """The effective levels of all loggers, or of the requested ones."""
    name = resource.resource_name
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Broker id must not be empty")
    if name != str(node_id):
        reason = f"Unexpected broker id, expected {node_id} but received {name}"
        if not name.removeprefix("-").isdecimal():
            reason = f"Broker id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.invalid_request, reason)
    asked = resource.configuration_keys
    entries = [
        Struct(
            name=logger_name,
            value=_level_name(logger.getEffectiveLevel()),
            read_only=False,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=[],
            documentation="",
        )
        for logger_name, logger in _loggers().items()
        if not asked or logger_name in asked
    ]
    return Struct(
        error_code=ErrorCode.none,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=name,
        configs=entries,
    )


def alter(node_id: int, resource: Struct, validate_only: bool) -> Struct:
    code, message = ErrorCode.none, None
    try:
        if resource.resource_name != str(node_id):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected node id. Expected {node_id}, but received {resource.resource_name}",
            )
        changes = [_change(config) for config in resource.configs]
        if not validate_only:
            for logger, level in changes:
                logger.setLevel(level)
    except KafkaError as error:
        code, message = error.code, error.message
    return Struct(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    found = {n: logger for n, logger in known.items() if isinstance(logger, logging.Logger)}
    return {ROOT: logging.root, **dict(sorted(found.items()))}


def _level_name(level: int) -> str:
    return min(LEVELS, key=lambda name: abs(LEVELS[name] - level))


def _change(config: Struct) -> tuple[logging.Logger, int]:
    logger = _loggers().get(config.name)
    if logger is None:
        raise KafkaError(ErrorCode.invalid_config, f"Logger {config.name} does not exist!")
    if config.config_operation == DELETE:
        if config.name == ROOT:
            reason = "Removing the log level of the root logger is not allowed"
            raise KafkaError(ErrorCode.invalid_request, reason)
        return logger, logging.NOTSET
    if config.config_operation != SET:
        reason = f"Unknown operations type {config.config_operation}"
        raise KafkaError(ErrorCode.invalid_request, reason)
    if config.value not in LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {config.name} to {config.value} as it is not a "
            f"supported log level. Valid log levels are {', '.join(LEVELS)}",
        )
    return logger, LEVELS[config.value]
