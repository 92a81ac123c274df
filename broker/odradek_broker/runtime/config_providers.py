"""`${env:NAME}` in a server.properties file: Kafka's EnvVarConfigProvider (KIP-887).

    config.providers=env
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    advertised.listeners=PLAINTEXT://${env:HOST_IP}:9092

Without `config.providers=env` the text is not changed. The variables that may be read can be
limited (`config.providers.env.param.allowlist.pattern`). A variable that is not set is an error;
Kafka would leave the reference in the value.
"""

import re
from collections.abc import Mapping

from odradek_broker.model.config_table import ConfigError

PROVIDERS = "config.providers"
ENV = "env"
ALLOWED = "config.providers.env.param.allowlist.pattern"

_REFERENCE = re.compile(r"\$\{env:([^}:]*)\}")


def resolve(name: str, value: str, given: Mapping[str, str], env: Mapping[str, str]) -> str:
    """`value` with its references replaced; `given` is the whole file. Raises ConfigError."""
    providers = [one.strip() for one in given.get(PROVIDERS, "").split(",")]
    if ENV not in providers or name.startswith(PROVIDERS):
        return value
    allowed = re.compile(given.get(ALLOWED, ".*"))

    def replace(reference: re.Match[str]) -> str:
        variable = reference[1]
        if not allowed.fullmatch(variable):
            raise ConfigError(f"{name}: {reference[0]}: {ALLOWED} does not allow it")
        if variable not in env:
            raise ConfigError(f"{name}: {reference[0]}: the environment variable is not set")
        return env[variable]

    return _REFERENCE.sub(replace, value)
