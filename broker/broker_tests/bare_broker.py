"""A BrokerContext for tests of one part of the broker, without the services that it does not use.

context = bare_broker(node_id=1, settings=Settings({...}), apis=apis)
"""

from dataclasses import MISSING, fields
from typing import Any

from odradek_broker.handlers.broker_context import BrokerContext


def bare_broker(**services: Any) -> BrokerContext:
    """Services that are not given have their default, or are None where they have none."""
    missing = {
        field.name: None
        for field in fields(BrokerContext)
        if field.default is MISSING and field.default_factory is MISSING
    }
    return BrokerContext(**{**missing, **services})
