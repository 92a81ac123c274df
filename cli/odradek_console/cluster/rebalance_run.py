"""A proposal that the console carries out, step by step, with the connections of one user.

    run = runs.begin(client, access, proposal)    # the first step is done; a thread does the others
    run.progress, run.state
    runs.cancel(client)                           # with the connections of whoever cancels

One at a time: two would share the brokers' throttle. A console that ends cancels it: no throttle
stays behind, and what has moved stays where it is.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from odradek_console.cluster.access import Access
from odradek_operator.admin.balance import Rebalance, RefusedError
from odradek_operator.kafka.balance.document import Proposal
from odradek_operator.kafka.balance.execution import ExecutionProgress, Stage, place
from odradek_protocol.client.admin.partitions import alter_reassignments
from odradek_protocol.client.errors import ClientError
from odradek_protocol.client.kafka_client import KafkaClient

STEP_S = 1.0
CLOSE_S = 10.0  # for the cancellation when the console ends
logger = logging.getLogger(__name__)

# cancelling: no move begins any more, but a broker did not answer: it has to be cancelled again
MOVING, CANCELLING = "moving", "cancelling"
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"


class RunError(Exception):
    """Why it cannot begin, or what the cluster refused, as a sentence."""


@dataclass
class RebalanceRun:
    proposal: Proposal
    user: str
    began_ms: int
    progress: ExecutionProgress
    state: str = MOVING
    problem: str = ""  # a broker that does not answer now, or the refusal that ended it
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    @property
    def copied_percent(self) -> int:
        whole = self.proposal.bytes
        return 100 if whole == 0 else round(100 * (whole - self.progress.bytes_left) / whole)

    @property
    def counts(self) -> dict[str, int]:
        return {one.value: n for one in Stage if (n := self.progress.count(one))}


class Runs:
    """The run of this console, if there is one; the last one stays visible when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.last: RebalanceRun | None = None
        self._access: Access | None = None

    @property
    def active(self) -> RebalanceRun | None:
        busy = self.last is not None and self.last.state in (MOVING, CANCELLING)
        return self.last if busy else None

    def begin(self, client: KafkaClient, access: Access, proposal: Proposal) -> RebalanceRun:
        """Does the first step with `client`: what Kafka refuses, the user reads at once."""
        with self._lock:
            if self.active is not None:
                raise RunError(f"a rebalance of {self.active.user} is under way; cancel it first")
            rebalance = Rebalance(client, proposal)
            try:
                progress = rebalance.step()
            except RefusedError as error:
                _remove_throttle(rebalance)
                raise RunError(str(error)) from None
            run = RebalanceRun(proposal, access.user, time.time_ns() // 1_000_000, progress)
            self.last, self._access = run, access
            run.thread = threading.Thread(
                target=_carry_out, args=(run, access), name="rebalance", daemon=True
            )
            run.thread.start()
            return run

    def cancel(self, client: KafkaClient) -> None:
        """Stops the moves that are under way, and removes the throttle."""
        with self._lock:
            run = self.active
            if run is None:
                raise RunError("no rebalance is under way")
            _require_alter(client, run.proposal)
            rebalance = Rebalance(client, run.proposal)
            _end(run)
            run.state = CANCELLING
            try:
                run.progress = rebalance.stop()
            except (RefusedError, ClientError) as error:
                run.problem = str(error)
                raise RunError(f"{error}; cancel it again when the brokers answer") from None
            run.state, run.problem = CANCELLED, ""

    def close(self) -> None:
        """The console ends. Blocks for CLOSE_S at most, if a broker does not answer."""
        if self.active is None or self._access is None:
            return
        client = self._access.client()
        closing = threading.Thread(target=self._cancel_logged, args=(client,), daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        client.close()

    def _cancel_logged(self, client: KafkaClient) -> None:
        try:
            self.cancel(client)
            logger.warning("the rebalance was cancelled, because the console ends")
        except (RunError, ClientError) as error:
            logger.warning("the rebalance could not be cancelled: %s", error)


def _require_alter(client: KafkaClient, proposal: Proposal) -> None:
    """Asks Kafka to cancel one move, which is what is going to be done anyway.

    A user whom Kafka refuses must not stop the thread of somebody else either.
    """
    if proposal.moves:
        refused = alter_reassignments(client, {place(proposal.moves[0]): None})
        for error in refused.values():
            if "AUTHORIZATION" in error.name:
                raise RunError(error.detail)


def _end(run: RebalanceRun) -> None:
    run.stop.set()
    if run.thread is not None:
        run.thread.join()


def _carry_out(run: RebalanceRun, access: Access) -> None:
    with access.client() as client:
        rebalance = Rebalance(client, run.proposal)
        while not run.stop.wait(STEP_S):
            try:
                run.progress = rebalance.step()
                run.problem = ""
            except RefusedError as error:
                run.state, run.problem = FAILED, str(error)
                _remove_throttle(rebalance)
                return
            except ClientError as error:  # a broker restarts, for example: it is tried again
                run.problem = str(error)
                continue
            if run.progress.finished:
                run.state = DONE
                return


def _remove_throttle(rebalance: Rebalance) -> None:
    try:
        rebalance.remove_throttle()
    except (RefusedError, ClientError) as error:
        logger.warning("the throttle of a refused rebalance could not be removed: %s", error)
