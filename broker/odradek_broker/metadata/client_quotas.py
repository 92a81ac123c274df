"""Client quotas in the metadata: the entity that a quota applies to, and its values.

An entity is a user, a client id, a user with a client id, or an IP address. None instead of a name
is the default, for all that have no quota of their own:

    (("user", "alice"),)                           (("client-id", None),)
    (("user", None), ("client-id", "reports"))     (("ip", "10.0.0.7"),)

`security/quotas.py` applies them.
"""

from collections.abc import Mapping
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# (entity type, name or None for the default), in the order of ENTITY_TYPES.
QuotaEntity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def entity_of(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names, by entity type; types that do not exist come last."""
    known = [(kind, names[kind]) for kind in ENTITY_TYPES if kind in names]
    return (*known, *((k, name) for k, name in sorted(names.items()) if k not in ENTITY_TYPES))
