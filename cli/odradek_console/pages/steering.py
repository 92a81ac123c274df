"""Buttons for what runs the cluster: pause and resume it, stop, start and restart a pipeline.

Each is shown before it is made, as every change. It is carried out with the rights of the console's
account, so a user who has logged in has to be allowed to ALTER the cluster in Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from aiohttp import web

from odradek_console.cluster.runtime_state import (
    CLUSTER,
    PIPELINE,
    RuntimeSource,
    SteerError,
    SteeringAction,
)
from odradek_console.pages.runtime import source_of, state_of
from odradek_console.web.changes import Change, ChangeError, Row
from odradek_console.web.proposing import propose, refuse, text_of
from odradek_console.web.rendering import OPTIONS, address
from odradek_protocol.acl_codes import AclOperation
from odradek_protocol.client.admin.brokers import allowed_on_cluster
from odradek_protocol.client.kafka_client import KafkaClient


class Words(NamedTuple):
    action: str  # for the audit log and the title: "pause"
    before: str
    after: str
    done: str
    warning: str = ""


WORDS = {
    SteeringAction.PAUSE: Words(
        "pause", "changes are carried out", "nothing is changed",
        "It is paused from the next pass on.",
        "Brokers and clients go on, and a restart that has begun ends. But nothing is repaired "
        "either: no roll, no replacement, no renewal of certificates, until somebody resumes.",
    ),
    SteeringAction.RESUME: Words(
        "resume", "nothing is changed", "changes are carried out",
        "It goes on in the next pass, with the plan that the page shows.",
    ),
    SteeringAction.STOP: Words(
        "stop", "runs", "stopped; its checkpoint stays",
        "The driver is being stopped. A batch that was under way is repeated after the next start.",
    ),
    SteeringAction.START: Words(
        "start", "stopped", "runs from its checkpoint", "The driver is being started."
    ),
    SteeringAction.RESTART: Words(
        "restart", "runs", "a new driver runs from the checkpoint",
        "The driver is being restarted. A batch that was under way is repeated.",
    ),
}  # fmt: skip


async def steer_cluster(request: web.Request) -> web.StreamResponse:
    key = await text_of(request, "key")
    found, _ = await state_of(request)
    if found is None or key not in [one.key for one in found.clusters]:
        refuse(request, "/plan", "This KafkaCluster is not shown any more.")
    return await _propose(
        request, CLUSTER, key, (SteeringAction.PAUSE, SteeringAction.RESUME), "/plan"
    )


async def steer_pipeline(request: web.Request) -> web.StreamResponse:
    key = f"{request.match_info['namespace']}/{request.match_info['name']}"
    found, _ = await state_of(request)
    if found is None or key not in [one.key for one in found.pipelines]:
        refuse(request, "/pipelines", "This SparkPipeline is not shown any more.")
    back = address("pipelines", *key.split("/"))
    return await _propose(
        request,
        PIPELINE,
        key,
        (SteeringAction.STOP, SteeringAction.START, SteeringAction.RESTART),
        back,
    )


async def _propose(
    request: web.Request, kind: str, key: str, actions: tuple[SteeringAction, ...], back: str
) -> web.StreamResponse:
    given = await text_of(request, "action")
    action = next((one for one in actions if one.value == given), None)
    if action is None:
        refuse(request, back, "Expected one of: " + ", ".join(one.value for one in actions) + ".")
    words, login = WORDS[action], request.app[OPTIONS].login is not None
    propose(
        request,
        Change(
            f"{words.action} {kind}",
            key,
            f"{words.action.capitalize()} {kind} {key}",
            (Row(f"{kind} {key}", words.before, words.after),),
            partial(_apply, source=source_of(request), action=action, key=key, login=login),
            words.done,
            back,
            back,
            warning=words.warning,
            button=words.action.capitalize(),
        ),
    )


def _apply(
    client: KafkaClient, *, source: RuntimeSource, action: SteeringAction, key: str, login: bool
) -> None:
    if login and AclOperation.ALTER not in allowed_on_cluster(client):
        raise ChangeError("Kafka does not allow you to ALTER the cluster, which this needs.")
    try:
        source.steer(action, key)
    except SteerError as error:
        raise ChangeError(str(error)) from error
