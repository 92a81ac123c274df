"""The operator as a process: leader election, watches, and one worker per KafkaCluster.

    await Operator(OperatorOptions(namespaces=("default",)), client).run(stop)

kopf watches KafkaClusters, Topics, KafkaUsers, KafkaRebalances, pods, StatefulSets and nodes; it
lists again after a 410 and reconnects after a restart of the API server. Its events only wake the
worker of a cluster; what to do follows from observing, not from the event. Only raw event handlers
are used: kopf then writes no annotation and no finalizer of its own.

The passes of one cluster run one after the other, in a thread; different clusters in parallel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import httpx2
import kopf
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node

from odradek_api.base import GROUP, VERSION
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.admin.kafka_admin import KafkaAdmin
from odradek_operator.kubernetes import names
from odradek_operator.kubernetes.cluster_worker import ClusterWorker, Outcome, Tools
from odradek_operator.kubernetes.lease import RENEW_S, Lease
from odradek_operator.kubernetes.metrics import OperatorMetrics, serve
from odradek_operator.kubernetes.nodes import Nodes
from odradek_operator.kubernetes.objects import (
    Document,
    KafkaCluster,
    KafkaRebalance,
    KafkaUser,
    Topic,
    key_of,
    plain,
)
from odradek_operator.kubernetes.rebalance_book import RebalanceBook
from odradek_operator.kubernetes.spark_worker import SparkWorker
from odradek_operator.kubernetes.topic_book import TopicBook
from odradek_operator.kubernetes.user_book import UserBook
from odradek_operator.spark.modes import Mode

BUSY_S, WAITING_S, IDLE_S = 0.5, 2.0, 30.0  # until the next pass, unless an event wakes the worker
IDLE_SHARE = 0.05  # share of a core, at most, for observing an idle cluster
DEBOUNCE_S = 0.1  # coalesce bursts of events
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0
RESYNC_S = 300.0  # list everything again: a deletion may have been missed
PASSES_MAX = 4  # passes in parallel
STUCK_S = 600.0  # a longer pass is stuck: liveness fails and the kubelet restarts us
STOP_S = 20.0  # for running passes to end at shutdown

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OperatorOptions:
    namespaces: tuple[str, ...] = ()  # empty: all
    image: str = "odradek/broker:latest"
    apache_image: str = "odradek/apache:latest"
    port: int | None = None  # of /metrics, /healthz, /readyz
    lease_namespace: str | None = None  # None: no leader election, this is the only replica
    identity: str = "odradek-operator"
    nodes: bool = True  # False: not allowed to read nodes; specs name the racks
    spark: Mode = "off"  # the operator that runs SparkApplications
    spark_image: str = "odradek/spark:latest"

    def image_of(self, spec: KafkaClusterSpec) -> str:
        if spec.image:
            return spec.image
        image = self.apache_image if spec.engine == "apache" else self.image
        return f"{image.rpartition(':')[0]}:{spec.version}" if spec.version else image


class Operator:
    def __init__(
        self,
        options: OperatorOptions,
        client: Client,
        make_admin: Callable[[], KafkaAdmin] = lambda: KafkaAdmin(""),
    ) -> None:
        self.options = options
        self.metrics = OperatorMetrics()
        self.topics = TopicBook()
        self.users = UserBook()
        self.rebalances = RebalanceBook()
        self.nodes = Nodes()
        self.working = self._waiting = False
        self._client = client
        self._tools = Tools(
            client,
            self.topics,
            self.users,
            self.rebalances,
            self.nodes.values,
            options.image_of,
            make_admin,
        )
        self._threads = ThreadPoolExecutor(PASSES_MAX, "pass")
        self._clusters: set[str] = set()
        self._wakes: dict[str, asyncio.Event] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, float] = {}  # passes: since when
        self._stop = asyncio.Event()
        self._lease: Lease | None = None
        if options.lease_namespace is not None:
            self._lease = Lease(
                client, options.lease_namespace, "odradek-operator", options.identity
            )

    # -- start and stop ----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`. Raises if it lost the Lease or the watch failed."""
        http = None
        if self.options.port is not None:
            http = await serve(self.metrics, self.options.port, self._alive, self._ready)
        try:
            if await self._until_leading(stop):
                await self._lead(stop)
        finally:
            if self._lease is not None:
                await self._thread(self._lease.release)
            if http is not None:
                await http.cleanup()
            self._threads.shutdown(wait=False)

    async def _until_leading(self, stop: asyncio.Event) -> bool:
        while self._lease is not None and not await self._thread(self._lease.acquire):
            if not self._waiting:
                log.info("another replica holds the Lease; standing by")
            self._waiting = True
            if await _set_within(stop, RENEW_S):
                return False
        self._waiting = False
        self.metrics.leading.set(1)
        return not stop.is_set()

    async def _lead(self, stop: asyncio.Event) -> None:
        tasks = [
            asyncio.create_task(stop.wait(), name="stop"),
            asyncio.create_task(self._hold_lease(), name="lease"),
            asyncio.create_task(self._resync(), name="resync"),
        ]
        end_watch = asyncio.Event()
        try:
            await self._first_list(stop)
            if not stop.is_set():
                self.working = True
                tasks.append(asyncio.create_task(self._watch(end_watch), name="watch"))
                tasks.append(asyncio.create_task(self._pipelines(), name="pipelines"))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()
            end_watch.set()
            await self._end_workers()
            await self._end(tasks)
            self.metrics.leading.set(0)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise cast(BaseException, task.exception())

    async def _end_workers(self) -> None:
        for wake in self._wakes.values():
            wake.set()
        if workers := list(self._workers.values()):
            await asyncio.wait(workers, timeout=STOP_S)

    async def _end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Cancels all tasks but kopf's, which shuts down by its stop flag."""
        for task in tasks:
            if task.get_name() != "watch":
                task.cancel()
        await asyncio.wait(tasks, timeout=STOP_S)

    def _ready(self) -> bool:
        """It is leading, or standing by to take over."""
        return self.working or self._waiting

    def _alive(self) -> bool:
        return all(time.monotonic() - since < STUCK_S for since in self._running.values())

    async def _hold_lease(self) -> None:
        while self._lease is not None:
            await asyncio.sleep(RENEW_S)
            if not await self._thread(self._lease.acquire):
                raise RuntimeError("lost the Lease: another replica may be working")
        await asyncio.Event().wait()

    async def _thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)

    # -- lists -------------------------------------------------------------------------------------

    async def _first_list(self, stop: asyncio.Event) -> None:
        """Workers start only after a complete list: racks and clusters follow from it."""
        failures = 0
        while not stop.is_set():
            try:
                await self._thread(self._list)
                break
            except (ApiError, httpx2.HTTPError) as error:
                failures += 1
                log.warning("listing failed, retrying: %s", error)
                await _set_within(stop, _backoff_s(failures))
        for key in self._known():
            self.wake(key)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            try:
                gone = await self._thread(self._list)
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("listing failed, next attempt in %.0f s: %s", RESYNC_S, error)
                continue
            for key in gone | self._known():
                self.wake(key)

    def _known(self) -> set[str]:
        """All clusters that exist, or that a Topic, KafkaUser or KafkaRebalance refers to."""
        of_others = self.users.clusters() | self.rebalances.clusters()
        return self._clusters | self.topics.clusters() | of_others

    async def _pipelines(self) -> None:
        """Reconciles SparkPipelines and SparkApplications, one pass after the other."""
        if self.options.spark == "off":
            await asyncio.Event().wait()
        image, namespaces = self.options.spark_image, self.options.namespaces
        mode = self.options.spark
        worker = SparkWorker(self._client, self.topics, self.users, namespaces, image, mode=mode)
        failures = 0
        while True:
            try:
                pause_s = await self._thread(worker.one_pass)
                self.metrics.pipelines.show(worker.statuses)
                failures = 0
            except (ApiError, httpx2.HTTPError) as error:
                failures += 1
                pause_s = _backoff_s(failures)
                log.warning("pipelines: API request failed, retrying: %s", error)
            await asyncio.sleep(pause_s)

    def _list(self) -> set[str]:
        """Lists everything; returns the clusters of Topics and KafkaUsers that were deleted."""
        if self.options.nodes:
            self.nodes.replace_all(node.to_dict() for node in self._client.list(Node))
        clusters: set[str] = set()
        topics: list[Document] = []
        users: list[Document] = []
        versions: list[int] = []
        of_users: list[int] = []
        rebalances: list[Document] = []
        of_rebalances: list[int] = []
        for namespace in self.options.namespaces or ("*",):
            found = self._client.list(KafkaCluster, namespace=namespace)
            clusters |= {key_of(plain(one)) for one in found}
            listed = self._client.list(Topic, namespace=namespace)
            topics += [plain(one) for one in listed]
            versions.append(int(listed.resourceVersion))
            named = self._client.list(KafkaUser, namespace=namespace)
            users += [plain(one) for one in named]
            of_users.append(int(named.resourceVersion))
            moved = self._client.list(KafkaRebalance, namespace=namespace)
            rebalances += [plain(one) for one in moved]
            of_rebalances.append(int(moved.resourceVersion))
        self._clusters = clusters
        self.metrics.clusters.set(len(clusters))
        gone = self.topics.replace_all(topics, min(versions))
        gone |= self.users.replace_all(users, min(of_users))
        gone |= self.rebalances.replace_all(rebalances, min(of_rebalances))
        self.metrics.topics.set(len(self.topics))
        return gone

    # -- watch -------------------------------------------------------------------------------------

    async def _watch(self, end: asyncio.Event) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.peering.standalone = True
        # Do not scan namespaces and CRDs: without the rights, kopf would retry for a minute.
        settings.scanning.disabled = True
        # So that a dead connection is noticed.
        settings.watching.server_timeout, settings.watching.client_timeout = 240, 300
        scope: Any = (
            {"namespaces": self.options.namespaces}
            if self.options.namespaces
            else {"clusterwide": True}
        )
        # kopf's default identity needs a user name, which a container does not have.
        itself: Any = {"identity": self.options.identity, "standalone": True}
        await kopf.operator(
            registry=self._registry(), settings=settings, stop_flag=end, **itself, **scope
        )
        if not end.is_set() and not self._stop.is_set():
            log.info("the watch ended")

    def _registry(self) -> kopf.OperatorRegistry:
        registry: Any = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="file", errors=kopf.ErrorsMode.PERMANENT)(_login)
        ours = {"group": GROUP, "version": VERSION, "registry": registry}
        of_cluster: Any = {"labels": {names.CLUSTER_LABEL: kopf.PRESENT}, "registry": registry}
        kopf.on.event(plural="kafkaclusters", id="cluster", **ours)(self._on_cluster)
        kopf.on.event(plural="topics", id="topic", **ours)(self._on_topic)
        kopf.on.event(plural="kafkausers", id="user", **ours)(self._on_user)
        kopf.on.event(plural="kafkarebalances", id="rebalance", **ours)(self._on_rebalance)
        kopf.on.event("v1", "pods", id="pod", **of_cluster)(self._on_owned)
        kopf.on.event("apps", "v1", "statefulsets", id="set", **of_cluster)(self._on_owned)
        if self.options.nodes:
            kopf.on.event("v1", "nodes", id="node", registry=registry)(self._on_node)
        return cast(kopf.OperatorRegistry, registry)

    async def _on_cluster(self, event: Any, **_: Any) -> None:
        key = key_of(event["object"])
        if event["type"] == "DELETED":
            self._clusters.discard(key)
        else:
            self._clusters.add(key)
        self.metrics.clusters.set(len(self._clusters))
        self.wake(key)

    async def _on_topic(self, event: Any, **_: Any) -> None:
        change = self.topics.drop if event["type"] == "DELETED" else self.topics.put
        self.wake(change(event["object"]))
        self.metrics.topics.set(len(self.topics))

    async def _on_user(self, event: Any, **_: Any) -> None:
        change = self.users.drop if event["type"] == "DELETED" else self.users.put
        self.wake(change(event["object"]))

    async def _on_rebalance(self, event: Any, **_: Any) -> None:
        change = self.rebalances.drop if event["type"] == "DELETED" else self.rebalances.put
        self.wake(change(event["object"]))

    async def _on_owned(self, event: Any, **_: Any) -> None:
        metadata = event["object"]["metadata"]
        self.wake(f"{metadata['namespace']}/{metadata['labels'][names.CLUSTER_LABEL]}")

    async def _on_node(self, event: Any, **_: Any) -> None:
        change = self.nodes.drop if event["type"] == "DELETED" else self.nodes.put
        if change(event["object"]):
            for key in list(self._clusters):
                self.wake(key)

    # -- workers -----------------------------------------------------------------------------------

    def wake(self, key: str) -> None:
        """Triggers a pass over this cluster; starts its worker if there is none."""
        namespaces: Sequence[str] = self.options.namespaces
        if self._stop.is_set() or (namespaces and key.partition("/")[0] not in namespaces):
            return
        if key not in self._workers:
            self._wakes[key] = asyncio.Event()
            self._workers[key] = asyncio.create_task(self._work(key), name=f"worker {key}")
        self._wakes[key].set()

    async def _work(self, key: str) -> None:
        worker, wake, failures = ClusterWorker(key, self._tools), self._wakes[key], 0
        try:
            while not self._stop.is_set():
                wake.clear()
                outcome, cost_s = await self._pass(key, worker)
                if outcome is Outcome.GONE and not wake.is_set():
                    break
                failures = 0 if outcome is not None else failures + 1
                if outcome is None:  # after a failure, ignore wake-ups and back off
                    await _set_within(self._stop, _backoff_s(failures))
                else:
                    await _set_within(wake, _pause_s(outcome, cost_s))
                    await _set_within(self._stop, DEBOUNCE_S)
        finally:
            del self._workers[key], self._wakes[key]
            worker.close()
            with contextlib.suppress(KeyError):
                self.metrics.gone(key)

    async def _pass(self, key: str, worker: ClusterWorker) -> tuple[Outcome | None, float]:
        """Returns the outcome (None: the pass failed, which is logged) and its duration."""
        began = self._running[key] = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            outcome = await loop.run_in_executor(self._threads, worker.one_pass)
            cost_s = time.monotonic() - began
            if outcome is not Outcome.GONE:
                self.metrics.passed(key, began, worker.broker_count, len(worker.failures))
                self.metrics.expiry(key, worker.not_after)
            return outcome, cost_s
        except (ApiError, httpx2.HTTPError) as error:
            code = str(error.status.code) if isinstance(error, ApiError) else type(error).__name__
            self.metrics.errors.labels(code).inc()
            log.warning("%s: API request failed, retrying: %s", key, error)
        except Exception as error:
            self.metrics.errors.labels(type(error).__name__).inc()
            log.exception("%s: pass failed, retrying", key)
        finally:
            del self._running[key]
        return None, 0.0


def _login(**given: Any) -> Any:
    """Like lightkube: the service account in a pod, the kubeconfig elsewhere."""
    return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)


def _pause_s(outcome: Outcome, cost_s: float) -> float:
    if outcome is Outcome.BUSY:
        return BUSY_S
    return WAITING_S if outcome is Outcome.WAITING else max(IDLE_S, cost_s / IDLE_SHARE)


def _backoff_s(failures: int) -> float:
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1.0)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
