"""Security: users, ACLs as a matrix and as a question, quotas, certificates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from odradek_api.kafka_cluster.status import CertificateStatus
from odradek_console.cluster import permissions
from odradek_console.cluster.runtime_state import RuntimeState
from odradek_console.cluster.view import ClusterView
from odradek_console.pages.runtime import state_of
from odradek_console.text import days_until
from odradek_console.web.changes import Change, Row
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import SESSION, Page, number_of, render
from odradek_protocol.acl_codes import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from odradek_protocol.client.admin.acls import AclSelection, add_acls, list_acls, remove_entries
from odradek_protocol.client.admin.configs import ResourceType
from odradek_protocol.client.admin.quotas import list_quotas
from odradek_protocol.client.admin.users import list_users
from odradek_protocol.client.errors import BrokerError, ClientError
from odradek_protocol.client.kafka_client import KafkaClient

KINDS = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "transactional id": AclResource.TRANSACTIONAL_ID,
    "cluster": AclResource.CLUSTER,
}
CLUSTER_NAME = "kafka-cluster"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
OPERATIONS = tuple(
    AclOperation[name]
    for name in ("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
                 "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE")
)  # fmt: skip
PAGE_SIZE = 50
SOON_DAYS, LATE_DAYS = 30, 7


@dataclass
class MatrixRow:
    """The rights of one principal on one resource pattern."""

    principal: str
    kind: AclResource
    name: str
    pattern: PatternType
    cells: dict[AclOperation, list[AclEntry]]


async def security(request: web.Request) -> web.Response:
    session = request[SESSION]
    tab = request.query.get("tab", "acls")
    if tab == "users":
        return render(request, "security.html", tab=tab, **await session.run(_users, session.view))
    if tab == "certificates":
        state, problem = await state_of(request)  # 404 without a runtime
        return render(
            request, "security.html", tab=tab, problem=problem,
            certificates=_certificates(state) if state is not None else [],
        )  # fmt: skip
    if tab == "quotas":
        return render(request, "security.html", tab=tab, **await session.run(_quotas, session.view))
    found = await session.run(
        _acls, session.view, dict(request.query), number_of(request, "page", 1)
    )
    return render(
        request, "security.html", tab="acls", kinds=list(KINDS), operations=OPERATIONS,
        given=request.query, sentence=permissions.sentence, **found,
    )  # fmt: skip


@dataclass(frozen=True)
class CertificateRow:
    cluster: str
    status: CertificateStatus
    days: int | None  # until it expires; None: not known

    @property
    def level(self) -> str:
        """An expiry that comes this close means that a renewal has failed for weeks."""
        if self.days is None or self.days >= SOON_DAYS:
            return ""
        return "bad" if self.days < LATE_DAYS else "warn"


def _certificates(state: RuntimeState) -> list[CertificateRow]:
    """The first to expire is the first in the list."""
    rows = [
        CertificateRow(cluster.key, one, days_until(one.not_after, time.time()))
        for cluster in state.clusters
        for one in cluster.status.certificates
    ]
    return sorted(rows, key=lambda row: row.status.not_after)


def _acls(view: ClusterView, query: Mapping[str, str], number: int) -> dict[str, Any]:
    problem = ""
    entries: list[AclEntry] = []
    try:
        entries = list_acls(view.client, AclSelection())
    except BrokerError as error:
        if error.name == "SECURITY_DISABLED":
            problem = "The brokers have no authorizer: everybody may do everything."
        else:
            problem = f"The ACLs cannot be shown: {error}."
    wanted = query.get("q", "").strip().lower()
    shown = [e for e in entries if wanted in e.principal.lower() or wanted in e.name.lower()]
    return {
        "problem": problem,
        "total": len(entries),
        "page": Page(_matrix(shown), number, PAGE_SIZE),
        "verdict": None if problem else _verdict(view, entries, query),
        "principals": sorted({e.principal for e in entries}),
    }


def _matrix(entries: list[AclEntry]) -> list[MatrixRow]:
    rows: dict[tuple[object, ...], MatrixRow] = {}
    for e in sorted(entries, key=lambda e: (e.principal, e.kind, e.name, e.pattern)):
        key = (e.principal, e.kind, e.name, e.pattern)
        row = rows.setdefault(key, MatrixRow(e.principal, e.kind, e.name, e.pattern, {}))
        row.cells.setdefault(e.operation, []).append(e)
    return list(rows.values())


def _verdict(
    view: ClusterView, entries: list[AclEntry], query: Mapping[str, str]
) -> tuple[str, permissions.Verdict | str] | None:
    """The question, and its answer or what is wrong with it; None: nothing was asked."""
    principal, operation = query.get("principal", "").strip(), query.get("operation", "")
    if not principal or operation not in AclOperation.__members__:
        return None
    if ":" not in principal:
        principal = f"User:{principal}"
    kind = KINDS.get(query.get("kind", "topic"), AclResource.TOPIC)
    name = CLUSTER_NAME if kind is AclResource.CLUSTER else query.get("name", "").strip()
    host = query.get("host", "").strip() or permissions.ANY_HOST
    question = (f"May {principal} {operation} {kind.name.lower().replace('_', ' ')} "
                f"{name or '…'} from {host}?")  # fmt: skip
    if not name:
        return question, "Name the resource."
    try:
        return question, permissions.ask(
            entries, _rules(view), principal, AclOperation[operation], (kind, name), host
        )
    except ValueError as error:
        return question, str(error)


def _rules(view: ClusterView) -> permissions.Rules:
    """From the settings of a broker, if the user may see them."""
    try:
        broker = next(iter(view.metadata().brokers))
        found = view.configs(ResourceType.BROKER, str(broker))
    except ClientError as error:
        found = error
    if isinstance(found, ClientError):
        return permissions.Rules(None, None)
    supers = found.get("super.users")
    everyone = found.get("allow.everyone.if.no.acl.found")
    return permissions.Rules(
        None if supers is None or supers.sensitive
        else frozenset(one.strip() for one in (supers.value or "").split(";") if one.strip()),
        None if everyone is None else everyone.value == "true",
    )  # fmt: skip


def _users(view: ClusterView) -> dict[str, Any]:
    try:
        found = list_users(view.client)
    except ClientError as error:
        return {"users": [], "problem": f"The users cannot be shown: {error}."}
    rows = [
        (user, [(MECHANISMS.get(m, str(m)), rounds) for m, rounds in sorted(known.items())])
        for user, known in sorted(found.items())
    ]
    return {"users": rows, "problem": ""}


def _quotas(view: ClusterView) -> dict[str, Any]:
    try:
        found = list_quotas(view.client)
    except ClientError as error:
        return {"quotas": [], "problem": f"The quotas cannot be shown: {error}."}
    rows = [
        (", ".join(f"{kind} {name if name is not None else '(default)'}"
                   for kind, name in entity.items()), key, limit)
        for entity, values in found
        for key, limit in sorted(values.items())
    ]  # fmt: skip
    return {"quotas": sorted(rows), "problem": ""}


# -- changes ---------------------------------------------------------------------------------------


async def change_acl(request: web.Request) -> web.StreamResponse:
    """`action` add or remove, with the fields of one entry."""
    action = await text_of(request, "action")
    entry = await _entry_of(request)
    words = permissions.sentence(entry)
    if action == "add":
        propose(
            request,
            Change("add ACL", words, "Add an ACL", (Row(words, "not there", "added"),),
                   partial(_add, entry=entry), f"Added: {words}.", "/security", "/security",
                   button="Add ACL"),
        )  # fmt: skip
    propose(
        request,
        Change("remove ACL", words, "Remove an ACL", (Row(words, "there", "removed"),),
               partial(_remove, entry=entry), f"Removed: {words}.", "/security", "/security",
               warning="Clients that stand on it are refused from then on.", button="Remove ACL"),
    )  # fmt: skip


async def _entry_of(request: web.Request) -> AclEntry:
    principal = await text_of(request, "principal")
    kind = KINDS.get(await text_of(request, "kind"))
    name = CLUSTER_NAME if kind is AclResource.CLUSTER else await text_of(request, "name")
    operation = await text_of(request, "operation")
    pattern = await text_of(request, "pattern") or PatternType.LITERAL.name
    permission = await text_of(request, "permission") or AclPermission.ALLOW.name
    if principal and ":" not in principal:
        principal = f"User:{principal}"
    known = (
        operation in AclOperation.__members__
        and pattern in ("LITERAL", "PREFIXED")
        and permission in ("ALLOW", "DENY")
    )
    if kind is None or not name or not principal or not known:
        refuse(request, "/security", "An ACL needs a principal, a resource and an operation.")
    host = await text_of(request, "host") or "*"
    return AclEntry(
        kind, name, PatternType[pattern], principal, host, AclOperation[operation],
        AclPermission[permission],
    )  # fmt: skip


def _add(client: KafkaClient, entry: AclEntry) -> None:
    add_acls(client, [entry])


def _remove(client: KafkaClient, entry: AclEntry) -> None:
    remove_entries(client, [entry])
