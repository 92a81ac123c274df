"""The listeners of a KafkaCluster: a list, and the deprecated mapping, which becomes the same list.

    listeners:
      - {name: plaintext, port: 9092}                  # for clients in Kubernetes
      - name: external
        port: 9094
        type: nodeport
        tls: true
        authentication: {type: scram-sha-512}

In Kafka a listener has its name in capitals. The CRD leaves the type of `listeners` open, because
a structural schema cannot describe two forms (operator/adr/0003), so parse.py is the only check.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import AS_SET, FreeForm, NonEmpty, Port, Spec
from odradek_api.kafka_cluster.limits import BROKERS_MAX

PLAINTEXT, EXTERNAL, CLIENTS = "plaintext", "external", "clients"  # names of default listeners
# Names that users cannot choose.
REPLICATION, CONTROLLER, CONTROLLER_TLS = "replication", "controller", "controllertls"
DEPRECATED = (
    "spec.listeners is a mapping: write it as a list, for example "
    "[{name: plaintext, port: 9092}], where external: {…} becomes "
    "{name: external, type: nodeport or loadbalancer, port: 9094, advertised: […]}"
)


class AdvertisedAddress(Spec, frozen=True, kw_only=True):
    """Address of one broker for the clients of a listener."""

    id: Annotated[int, Meta(ge=0, description="Id of the broker, for example 0.")]
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Host name or IP that the broker advertises, for example "
            "kafka-0.example.com.",
        ),
    ]
    port: Annotated[
        Port | None,
        Meta(
            description="Port that the broker advertises. Default: the node port (type nodeport), "
            "443 (type passthrough), or the port of the listener."
        ),
    ] = None
    node_port: Annotated[
        Port | None,
        Meta(description="Node port of the broker's Service. Default: Kubernetes chooses one."),
    ] = None


class Oauth(Spec, frozen=True, kw_only=True):
    """How access tokens of an identity provider (OpenID Connect) are checked."""

    jwks_url: Annotated[
        NonEmpty,
        Meta(
            description="Where the provider publishes its keys, for example "
            "https://id.example.com/keys."
        ),
    ]
    issuer: Annotated[
        str | None,
        Meta(description="The issuer that tokens must have. Default: not checked."),
    ] = None
    audience: Annotated[
        str | None,
        Meta(description="The audience that tokens must have. Default: not checked."),
    ] = None
    user_claim: Annotated[
        NonEmpty, Meta(description="The claim that is the name of the user. Default: sub.")
    ] = "sub"


class ListenerAuthentication(Spec, frozen=True, kw_only=True):
    """How clients of a listener authenticate."""

    type: Annotated[
        Literal["none", "scram-sha-512", "scram-sha-256", "oauth", "mtls"],
        Meta(
            description="none: clients are anonymous. scram-sha-512 and scram-sha-256: user and "
            "password. oauth: a token of an identity provider. mtls: a certificate of the "
            "clients CA. Default: none."
        ),
    ] = "none"
    oauth: Annotated[
        Oauth | None,
        Meta(description="The identity provider; required for type oauth. Default: none."),
    ] = None


class Listener(Spec, frozen=True, kw_only=True):
    """One listener: its port, who can reach it, and how clients authenticate."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9]*$",
            max_length=13,
            description="Name of the listener, for example clients. Kafka shows it in capitals.",
        ),
    ]
    port: Annotated[Port, Meta(description="Port of the listener in the pods.")]
    type: Annotated[
        Literal["internal", "nodeport", "loadbalancer", "passthrough"],
        Meta(
            description="internal: for clients inside Kubernetes. nodeport and loadbalancer: for "
            "clients outside, with one Service per broker. passthrough: the same with Services "
            "inside Kubernetes, for a proxy of yours that passes TLS through and chooses the "
            "broker by the host name (SNI); it needs tls and hostPattern. Default: internal."
        ),
    ] = "internal"
    tls: Annotated[bool, Meta(description="Encrypt connections with TLS. Default: false.")] = False
    authentication: Annotated[
        ListenerAuthentication, Meta(description="How clients authenticate. Default: not at all.")
    ] = field(default_factory=ListenerAuthentication)
    advertised: Annotated[
        list[AdvertisedAddress],
        Meta(
            max_length=BROKERS_MAX,
            description="Addresses of single brokers, where they differ from the pod's, the node's "
            "or the load balancer's. They become names of the broker's certificate. Default: "
            "none.",
        ),
    ] = field(default_factory=list)
    host_pattern: Annotated[
        Annotated[str, Meta(pattern=r"^[-a-z0-9.]*\{id\}[-a-z0-9.]*$", max_length=200)] | None,
        Meta(
            description="Host name that each broker advertises to clients outside, with {id} for "
            "its id, for example kafka-{id}.example.com. `advertised` wins over it. For type "
            "passthrough kafka-bootstrap.example.com, with `bootstrap` for the id, leads to any "
            "broker. Default: the address of the node or of the load balancer."
        ),
    ] = None
    allowed_namespaces: Annotated[
        Annotated[
            list[Annotated[str, Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]],
            Meta(max_length=100, extra_json_schema=AS_SET),
        ]
        | None,
        Meta(
            description="Namespaces whose pods may connect, in addition to the namespace of the "
            "cluster; * allows all. It creates a NetworkPolicy. Default: not restricted.",
        ),
    ] = None
    annotations: Annotated[
        FreeForm,
        Meta(
            description="Annotations of the Services of types nodeport and loadbalancer. Default: "
            "none."
        ),
    ] = field(default_factory=dict)

    def host_of(self, name: str) -> str:
        """By the pattern; `name` is the id of a broker, or `bootstrap`."""
        return (self.host_pattern or "").replace("{id}", name)

    @property
    def kafka_name(self) -> str:
        return self.name.upper()

    @property
    def protocol(self) -> str:
        """Kafka's security protocol."""
        sasl = self.authentication.type not in ("none", "mtls")
        return ("SASL_" if sasl else "") + ("SSL" if self.tls else "PLAINTEXT")


# -- the deprecated form ---------------------------------------------------------------------------


class ExternalMapping(Spec, frozen=True, kw_only=True):
    """The external listener in the deprecated form."""

    type: Annotated[
        Literal["NodePort", "LoadBalancer"],
        Meta(description="Type of the Services. Default: NodePort."),
    ] = "NodePort"
    port: Annotated[
        Port, Meta(description="Port of the external listener in the pods. Default: 9094.")
    ] = 9094
    brokers: Annotated[
        list[AdvertisedAddress],
        Meta(
            max_length=BROKERS_MAX,
            description="Addresses of single brokers, where they differ from the node's address "
            "or the load balancer's. Default: none.",
        ),
    ] = field(default_factory=list)
    annotations: Annotated[
        FreeForm,
        Meta(
            description="Annotations of the Services, for example for a cloud's load balancer. "
            "Default: none."
        ),
    ] = field(default_factory=dict)


class ListenerMapping(Spec, frozen=True, kw_only=True):
    """The deprecated form of spec.listeners: an internal listener and perhaps an external one."""

    port: Annotated[
        Port,
        Meta(
            description="Port of the listener inside Kubernetes, for clients and for replication "
            "between brokers. Default: 9092."
        ),
    ] = 9092
    external: Annotated[
        ExternalMapping | None,
        Meta(
            description="Listener for clients outside Kubernetes. Default: none; the cluster is "
            "reachable only from inside."
        ),
    ] = None


def listener_list(
    given: list[Listener] | ListenerMapping | None, *, strict: bool
) -> tuple[Listener, ...]:
    """The listeners of a spec in either form, or the default."""
    if isinstance(given, list):
        return tuple(given)
    if given is None and strict:
        scram = ListenerAuthentication(type="scram-sha-512")
        return (Listener(name=CLIENTS, port=9092, tls=True, authentication=scram),)
    mapping = given or ListenerMapping()
    inside = Listener(name=PLAINTEXT, port=mapping.port)
    external = mapping.external
    if external is None:
        return (inside,)
    kind: Literal["nodeport", "loadbalancer"] = (
        "nodeport" if external.type == "NodePort" else "loadbalancer"
    )
    outside = Listener(
        name=EXTERNAL,
        port=external.port,
        type=kind,
        advertised=external.brokers,
        annotations=external.annotations,
    )
    return inside, outside
