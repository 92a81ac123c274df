"""The spec of a KafkaRebalance: what to balance, when, and how fast.

    apiVersion: odradek.dev/v1alpha1
    kind: KafkaRebalance
    metadata: {name: nightly}
    spec:
      cluster: {name: main}
      mode: full
      throttle: 50M
      schedule: "0 2 * * *"
      autoApprove: true

Without `schedule`, `imbalance` and `automatic` there is one proposal; a new value of the annotation
odradek.dev/refresh asks for another one. Rules between fields are in rules.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from odradek_api.base import AS_SET, ClusterRef, NonEmpty, Quantity, Spec, TopicName

Mode = Literal["full", "add-brokers", "remove-brokers", "remove-disks", "hot-disk", "leaders-only"]
GoalName = Literal[
    "disk", "bytes-in", "bytes-out", "leader-bytes-in", "leaders", "replicas", "topic-spread"
]
Cancel = Literal["keep", "back"]
Window = Literal["minute", "hour", "day"]
BrokerId = Annotated[int, Meta(ge=0, le=9_999)]

# Each of them is an alternative to a field, for `kubectl annotate`.
APPROVE_ANNOTATION = "odradek.dev/approve"  # the id of the proposal: status.proposal
CANCEL_ANNOTATION = "odradek.dev/cancel"  # keep or back
REFRESH_ANNOTATION = "odradek.dev/refresh"  # any new value: a new proposal


class Disk(Spec, frozen=True, kw_only=True):
    """A log directory of a broker."""

    broker: Annotated[int, Meta(ge=0, le=9_999, description="Id of the broker.")]
    path: Annotated[
        str, Meta(min_length=1, description="The directory as in log.dirs, such as /data/disk-2.")
    ]


class Imbalance(Spec, frozen=True, kw_only=True):
    """When the cluster counts as unbalanced."""

    percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="A proposal is made when a soft goal has more than this part of its total "
            "outside of the bands of its brokers, or a hard goal is violated.",
        ),
    ]
    check_minutes: Annotated[
        int, Meta(ge=1, le=10_080, description="How often this is checked. Default: 10.")
    ] = 10


class Automatic(Spec, frozen=True, kw_only=True):
    """Events after which a proposal is made. It is carried out as any other: see autoApprove."""

    scale_up: Annotated[
        bool,
        Meta(
            description="New brokers get replicas and leaders of the others (mode add-brokers). "
            "Default: false."
        ),
    ] = False
    scale_down: Annotated[
        bool,
        Meta(
            description="Brokers that leave the cluster are emptied by a proposal (mode "
            "remove-brokers), which weighs their loads, and not by number. Default: false."
        ),
    ] = False
    racks: Annotated[
        bool,
        Meta(
            description="A proposal when a broker is in another rack than before (mode full). "
            "Default: false."
        ),
    ] = False
    broker_loss_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=10_080)] | None,
        Meta(
            description="After a broker has been away for so long, others get its replicas (mode "
            "remove-brokers). Moves that had begun before are stopped. Default: never."
        ),
    ] = None

    @property
    def any(self) -> bool:
        return self.scale_up or self.scale_down or self.racks or bool(self.broker_loss_minutes)


class KafkaRebalanceSpec(Spec, frozen=True, kw_only=True):
    """The goals of the balance, when it is made, and how fast replicas move."""

    cluster: Annotated[
        ClusterRef, Meta(description="The KafkaCluster, in the same namespace. It cannot change.")
    ]
    mode: Annotated[
        Mode,
        Meta(
            description="full: anything that improves a goal. add-brokers: only to spec.brokers. "
            "remove-brokers: everything off spec.brokers. remove-disks: off spec.disks, to other "
            "directories of the same brokers. hot-disk: off directories and brokers that use more "
            "than 80 % of their room. leaders-only: nothing is copied. Default: full."
        ),
    ] = "full"
    brokers: Annotated[
        list[BrokerId],
        Meta(
            max_length=1000,
            description="Ids of the brokers that add-brokers fills or remove-brokers empties, for "
            "example [3, 4]. Default: none.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    disks: Annotated[
        list[Disk],
        Meta(
            max_length=1000,
            description="Directories that the mode remove-disks empties. Default: none.",
        ),
    ] = field(default_factory=list)
    goals: Annotated[
        list[GoalName],
        Meta(description="Only these soft goals. Default: all of them.", extra_json_schema=AS_SET),
    ] = field(default_factory=list)
    excluded_topics: Annotated[
        list[TopicName],
        Meta(
            max_length=10_000,
            description="Topics whose replicas do not move, for example [payments]. Default: none.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    excluded_brokers: Annotated[
        list[BrokerId],
        Meta(
            max_length=1000,
            description="Ids of brokers that receive no replicas and no leaders. Default: none.",
            extra_json_schema=AS_SET,
        ),
    ] = field(default_factory=list)
    replicas_max: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(
            description="The most replicas of a broker: none gets more, and a broker that has more "
            "loses some. Default: no limit."
        ),
    ] = None
    price: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1000.0,
            description="Imbalance that moving all bytes has to remove; a higher price moves less. "
            "Default: 0.1: moving 1 % of the bytes has to remove 0.1 % of imbalance.",
        ),
    ] = 0.1
    window: Annotated[
        Window,
        Meta(
            description="Loads of the last minute, hour or day, as far as the brokers have run for "
            "so long. Of Apache Kafka: one minute, or 15 minutes. Default: hour."
        ),
    ] = "hour"
    throttle: Annotated[
        Quantity,
        Meta(
            description="Bytes per second that a broker sends and receives for moves, such as 50M. "
            "It is set as Kafka's replication throttle and removed at the end. Default: 50M."
        ),
    ] = "50M"
    auto_approve: Annotated[
        bool,
        Meta(description="Carry out every proposal without an approval. Default: false."),
    ] = False
    approve: Annotated[
        NonEmpty | None,
        Meta(
            description="The id of the proposal (status.proposal) that is to be carried out. The "
            "annotation odradek.dev/approve does the same. Default: no approval."
        ),
    ] = None
    cancel: Annotated[
        Cancel | None,
        Meta(
            description="Stops the moves and makes no new proposal while it is set. keep: what has "
            "moved stays. back: it is moved back. The annotation odradek.dev/cancel does the same. "
            "Default: not cancelled."
        ),
    ] = None
    schedule: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(
            description='When a new proposal is made, as in cron, in UTC: "0 2 * * *". Default: '
            "once.",
        ),
    ] = None
    imbalance: Annotated[
        Imbalance | None,
        Meta(description="Makes a new proposal when the cluster is unbalanced. Default: never."),
    ] = None
    automatic: Annotated[
        Automatic,
        Meta(description="Makes a new proposal after these events. Default: none of them."),
    ] = field(default_factory=Automatic)
