"""A model of the users of a Kafka cluster: what each action of security/users.py does to them."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_operator.security.users import (
    AddAcls,
    AlterQuotas,
    DeleteCredentials,
    Entity,
    ObservedUsers,
    RemoveAcls,
    SetPassword,
    UserAction,
)


def apply(actions: list[UserAction], observed: ObservedUsers) -> ObservedUsers:
    """The state of Kafka after these actions."""
    scram = {name: dict(found) for name, found in observed.scram.items()}
    acls = None if observed.acls is None else set(observed.acls)
    quotas: dict[Entity, dict[str, float]] = {e: dict(v) for e, v in observed.quotas.items()}
    for action in actions:
        match action:
            case SetPassword(name, mechanism, iterations):
                scram.setdefault(name, {})[mechanism] = iterations
            case DeleteCredentials(name, mechanisms):
                for mechanism in mechanisms:
                    del scram[name][mechanism]
                if not scram[name]:
                    del scram[name]
            case AddAcls(entries):
                assert acls is not None
                acls |= set(entries)
            case RemoveAcls(entries):
                assert acls is not None
                acls -= set(entries)
            case AlterQuotas(entity, changes):
                _alter(quotas, entity, changes)
    return ObservedUsers(scram, None if acls is None else frozenset(acls), quotas)


def _alter(
    quotas: dict[Entity, dict[str, float]], entity: Entity, changes: Mapping[str, float | None]
) -> None:
    values = quotas.setdefault(entity, {})
    for key, value in changes.items():
        if value is None:
            del values[key]
        else:
            values[key] = value
    if not values:
        del quotas[entity]
