"""The environment of the brokers that run as processes of this machine.

A broker takes settings from variables that begin with KAFKA_, and they win over its file. So the
caller's variables are not passed on by default: KAFKA_LISTENERS of a shell would put every broker
of a cluster on the same port.
"""

from __future__ import annotations

import os

SETTINGS_PREFIX = "KAFKA_"  # as in odradek_broker/runtime/settings_sources.py


def without_settings() -> dict[str, str]:
    """The environment of this process, without the variables that a broker reads as settings."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_PREFIX)
    }
