"""`odradek local demo --secure`: the roll with TLS, SCRAM and ACLs, and a new CA in the middle.

    secure(manifests, change)                  # the copied manifests: of a strict cluster now
    demo = SecureDemo(manifests, state)
    demo.login()                               # librdkafka's settings of the demo's user
    demo.midway(cluster, pids)                 # in each pass: half of the brokers are restarted
    demo.findings(bootstrap, topic)

A new CA is added to what everybody trusts before the clients start, so that they know both, as
clients have to during the overlap. It takes over when half of the brokers have restarted, and the
old one is dropped: no further restart, and no client may notice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_cli.demo_guest import Findings
from odradek_cli.librdkafka import security_settings
from odradek_cli.properties import read_properties

if TYPE_CHECKING:
    from odradek_operator.local.report import ClusterReport

USER, WITHOUT_RIGHTS = "demo", "demo-without-acls"
LATER_HOURS = 1  # nothing is dropped before the demo asks for it
DENIED_S = 5.0
Change = Callable[[dict[str, Any]], None]


def secure(manifests: Path, change_cluster: Callable[[Path, Change], None]) -> None:
    """Every listener with TLS and SCRAM, and two users: one with rights and one without."""
    import yaml

    change_cluster(manifests, _strict)
    topics, cluster = [], "main"
    for path in manifests.glob("*.y*ml"):
        for document in filter(None, yaml.safe_load_all(path.read_text())):
            if document["kind"] == "Topic":
                topics.append(document["spec"].get("name") or document["metadata"]["name"])
            elif document["kind"] == "KafkaCluster":
                cluster = document["metadata"]["name"]
    acls = [
        {"resource": {"type": "topic", "name": name}, "operations": ["read", "write"]}
        for name in topics
    ]
    acls.append({"resource": {"type": "group", "name": "demo"}, "operations": ["read"]})
    users = [_user(USER, cluster, acls), _user(WITHOUT_RIGHTS, cluster, [])]
    (manifests / "demo-users.yaml").write_text(yaml.safe_dump_all(users))


def _strict(document: dict[str, Any]) -> None:
    spec = document["spec"]
    spec.pop("listeners", None)
    spec |= {"security": "strict", "certificates": {"caOverlapHours": LATER_HOURS}}


def _user(name: str, cluster: str, acls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "odradek.dev/v1alpha1",
        "kind": "KafkaUser",
        "metadata": {"name": name},
        "spec": {
            "cluster": {"name": cluster},
            "authentication": {"type": "scram-sha-512"},
            "acls": acls,
        },
    }


def ask_for_ca(document: dict[str, Any]) -> None:
    document["metadata"].setdefault("annotations", {})["odradek.dev/rotate-ca"] = "demo"


def end_overlap(document: dict[str, Any]) -> None:
    document["spec"]["certificates"]["caOverlapHours"] = 0


class SecureDemo:
    def __init__(
        self, manifests: Path, state: Path, change: Callable[[Path, Change], None]
    ) -> None:
        self._manifests, self._change = manifests, change
        self._secrets = state / "secrets" / "default"
        self._half = False
        self._before = b""

    def begin_rotation(self) -> None:
        """Phase TrustBoth, which holds until `midway` ends the overlap."""
        self._before = self._trusted()
        self._change(self._manifests, ask_for_ca)

    def trusts_both(self) -> bool:
        """Also in what the user gets, so that a client that starts now knows both."""
        given = (self._secrets / USER / "ca.crt").read_bytes()
        return given == self._trusted() and given.count(b"BEGIN CERTIFICATE") > 1

    def midway(self, cluster: ClusterReport, pids: dict[int, int]) -> None:
        restarted = sum(cluster.pids.get(b) not in (None, pid) for b, pid in pids.items())
        if not self._half and restarted >= len(pids) / 2:
            self._half = True
            self._change(self._manifests, end_overlap)

    def login(self, user: str = USER) -> dict[str, str]:
        return security_settings(self._properties(user))

    def findings(self, bootstrap: str, topic: str) -> Findings:
        now = self._trusted()
        replaced = now.count(b"BEGIN CERTIFICATE") == 1 and now != self._before
        found = {
            "ca_replaced": "yes, when half of the brokers had restarted" if replaced else "no",
            "client_without_login": "refused" if _refused(bootstrap, topic, None) else "let in",
            "client_without_acl": "refused"
            if _refused(bootstrap, topic, self._properties(WITHOUT_RIGHTS))
            else "let in",
        }
        complaints = [] if replaced else ["the CA was not replaced"]
        complaints += [f"a {name.replace('_', ' ')} was let in"
                       for name, said in found.items() if said == "let in"]  # fmt: skip
        return Findings(dict(found), complaints)

    def _properties(self, user: str) -> dict[str, str]:
        return read_properties("--secure", self._secrets / user / "client.properties")

    def _trusted(self) -> bytes:
        (trust,) = self._secrets.glob("*-trust")
        return (trust / "cluster-ca.crt").read_bytes()


def _refused(bootstrap: str, topic: str, properties: dict[str, str] | None) -> bool:
    """Whether a client sees nothing of the topic."""
    from odradek_protocol.client import ClientError, ClientSettings, KafkaClient
    from odradek_protocol.client.security import SecuritySettings
    from odradek_protocol.client.settings import PLAINTEXT

    security = SecuritySettings.from_properties(properties) if properties else PLAINTEXT
    client = None
    try:
        client = KafkaClient(bootstrap, ClientSettings(security=security, deadline_s=DENIED_S))
        info = client.metadata().topics.get(topic)
        return info is None or info.error is not None
    except ClientError:
        return True
    finally:
        if client is not None:
            client.close()
