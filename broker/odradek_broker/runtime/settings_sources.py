"""The sources of settings: a server.properties file, the environment, flags.

Called by `Settings.load`. Each source is checked by itself, so that an error can name the line, the
variable or the flag: "server.properties:12: unknown setting num.partition; did you mean …?"
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek_broker.model.config_table import BROKER_CONFIGS, ConfigError, nearest
from odradek_broker.runtime import config_providers
from odradek_broker.runtime.properties import MalformedEscapeError, parse_properties

ENVIRONMENT_PREFIX = "KAFKA_"

# Variables of Kafka's start scripts and images that share the prefix but are not settings.
_NOT_SETTINGS = frozenset(
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_DEBUG",
        "KAFKA_MODE",
    ]
)
# Settings of plugins and of single listeners: the rest of the name is defined by them.
_OPEN_PREFIXES = ("listener.name.", "config.providers.", "rsm.config.", "rlmm.config.")


def read_file(file: Path, env: Mapping[str, str]) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not UTF-8: {error.reason}") from None
    try:
        lines = list(parse_properties(text))
    except MalformedEscapeError as error:
        raise ConfigError(f"{file}:{error.line}: {error}") from None
    given = {line.name: line.value for line in lines}
    found = {}
    for line, name, value in lines:
        where = f"{file}:{line}: "
        try:
            found[name] = config_providers.resolve(name, value, given, env)
        except ConfigError as error:
            raise ConfigError(where + str(error)) from None
        _check_known(name, found[name], where=where)
    return found


def read_environment(env: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """An unknown variable is only a warning: Kubernetes sets some itself for a Service that is
    called `kafka` (KAFKA_PORT, KAFKA_SERVICE_HOST, …)."""
    found = {}
    for variable, value in env.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS:
            continue
        name = _name_of_variable(variable)
        if not _known(name):
            warnings.append(f"environment: {variable}: {_unknown(name)}; ignored")
            continue
        _check_known(name, value, where=f"environment: {variable}: ")
        found[name] = value
    return found


def _name_of_variable(variable: str) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def read_flags(flags: Sequence[str]) -> dict[str, str]:
    found = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigError(f"flag {flag!r}: must be <setting>=<value>")
        _check_known(name, value, where="flag: ")
        found[name] = value
    return found


def _known(name: str) -> bool:
    return name in BROKER_CONFIGS or name in AUTHORIZER_SETTINGS or name.startswith(_OPEN_PREFIXES)


def _unknown(name: str) -> str:
    near = nearest(name, BROKER_CONFIGS)
    return f"unknown setting {name}" + (f"; did you mean {near}?" if near else "")


def _check_known(name: str, value: str, *, where: str) -> None:
    """Raises ConfigError with `where` in front if the name is unknown or the value invalid."""
    if not _known(name):
        raise ConfigError(where + _unknown(name))
    if name in BROKER_CONFIGS:
        try:
            BROKER_CONFIGS[name].parse(value)
        except ConfigError as error:
            raise ConfigError(where + str(error)) from None


# Kafka defines them in its authorizer, so they are in no table of broker settings.
AUTHORIZER_SETTINGS = frozenset({"super.users", "allow.everyone.if.no.acl.found"})


def no_effect_warnings(static: Mapping[str, str]) -> list[str]:
    warnings = []
    for name, text in static.items():
        key = BROKER_CONFIGS.get(name)
        if key is not None and (key.honoured or text == key.default):
            continue
        if name in AUTHORIZER_SETTINGS:
            continue
        if name.startswith(f"{config_providers.PROVIDERS}.{config_providers.ENV}."):
            continue
        if name.startswith("listener.name.") and _honoured_per_listener(name):
            continue
        warnings.append(f"{name} is known but has no effect in Odradek yet")
    return warnings


def _honoured_per_listener(name: str) -> bool:
    """`listener.name.external.plain.sasl.jaas.config`: settings of TLS and SASL have an effect."""
    own = name.split(".", 3)[-1]
    for candidate in (own, own.partition(".")[2]):
        key = BROKER_CONFIGS.get(candidate)
        if key is not None and candidate.startswith(("ssl.", "sasl.", "connections.max.reauth")):
            return key.honoured
    return False
