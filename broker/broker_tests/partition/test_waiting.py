"""The purgatory ends every wait exactly once: by the event or by the deadline."""

from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.partition.waiting import REBUILD_FROM, Deadlines, Ticket


class Recorded(Ticket):
    __slots__ = ("log", "name")

    def __init__(self, deadline_ms: float, name: int, log: list[tuple[str, int]]) -> None:
        super().__init__(deadline_ms)
        self.name, self.log = name, log

    def on_expired(self) -> None:
        self.log.append(("expired", self.name))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50)))),
    st.lists(st.integers(0, 60), min_size=1).map(sorted),
)
def test_each_wait_ends_once_and_at_the_right_time(
    waits: list[tuple[int, int | None]], clock: list[int]
) -> None:
    log: list[tuple[str, int]] = []
    deadlines = Deadlines()
    tickets = [Recorded(deadline, i, log) for i, (deadline, _) in enumerate(waits)]
    for ticket in tickets:
        deadlines.add(ticket)
    for now in clock:
        deadlines.expire(now)
        for ticket, (_, event_at) in zip(tickets, waits, strict=True):
            if event_at is not None and event_at <= now and deadlines.finish(ticket):
                log.append(("finished", ticket.name))
        assert deadlines.waiting == sum(not t.finished for t in tickets)
        upcoming = [t.deadline_ms for t in tickets if not t.finished]
        assert deadlines.next_deadline_ms() == (min(upcoming) if upcoming else None)
    assert len({name for _, name in log}) == len(log)
    for ticket, (deadline, event_at) in zip(tickets, waits, strict=True):
        due = deadline <= clock[-1] or (event_at is not None and event_at <= clock[-1])
        assert ticket.finished == due


def test_finished_tickets_do_not_pile_up_until_a_far_deadline() -> None:
    deadlines = Deadlines()
    for i in range(20 * REBUILD_FROM):
        ticket = Recorded(10_000_000, i, [])
        deadlines.add(ticket)
        deadlines.finish(ticket)
    assert len(deadlines._heap) <= REBUILD_FROM + 1
