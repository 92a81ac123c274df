"""Quotas without I/O: Kafka's precedence, its windows, and properties of both measurements."""

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek_broker.handlers.context import RequestContext
from odradek_broker.handlers.throttling import CLIENT_ID_LENGTH_MAX, client_of
from odradek_broker.metadata.client_quotas import QuotaEntity
from odradek_broker.model.principal import ANONYMOUS
from odradek_broker.security.quotas import CLIENTS_MAX, ClientQuotas, QuotaClient
from odradek_broker.security.rates import SampledRate, TokenBucket, Windows

ALICE = QuotaClient("alice", "app")
WINDOWS = Windows()
WINDOW_MS = 11_000.0


def quotas_for(limits: dict[QuotaEntity, float], key: str = "producer_byte_rate") -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.apply({entity: {key: limit} for entity, limit in limits.items()})
    return quotas


class TestPrecedence:
    # In Kafka's order: the first that exists decides.
    ENTITIES: tuple[QuotaEntity, ...] = (
        (("user", "alice"), ("client-id", "app")),
        (("user", "alice"), ("client-id", None)),
        (("user", "alice"),),
        (("user", None), ("client-id", "app")),
        (("user", None), ("client-id", None)),
        (("user", None),),
        (("client-id", "app"),),
        (("client-id", None),),
    )

    @given(st.sets(st.integers(0, 7), min_size=1))
    def test_the_most_specific_quota_applies(self, present: set[int]) -> None:
        """All have a huge limit, but the first that is present."""
        limits = {self.ENTITIES[i]: 1e12 for i in present}
        limits[self.ENTITIES[min(present)]] = 10.0
        assert quotas_for(limits).produce(ALICE, 1000, 0.0) > 0
        limits[self.ENTITIES[min(present)]] = 1e12
        assert quotas_for(limits).produce(ALICE, 1000, 0.0) == 0

    @pytest.mark.parametrize(
        ("entity", "shared_with"),
        [
            ((("user", "alice"),), QuotaClient("alice", "other")),
            ((("user", None),), QuotaClient("alice", "other")),
            ((("client-id", "app"),), QuotaClient("bob", "app")),
            ((("client-id", None),), QuotaClient("bob", "app")),
        ],
    )
    def test_clients_of_one_entity_share_its_limit(
        self, entity: QuotaEntity, shared_with: QuotaClient
    ) -> None:
        quotas = quotas_for({entity: 10.0})
        quotas.produce(ALICE, 1000, 0.0)
        assert quotas.produce(shared_with, 1, 1.0) > 0
        assert quotas.produce(QuotaClient("carol", "third"), 1, 1.0) == 0

    @pytest.mark.parametrize("entity", ENTITIES[:2])
    def test_a_quota_of_user_and_client_id_is_not_shared(self, entity: QuotaEntity) -> None:
        quotas = quotas_for({entity: 10.0})
        quotas.produce(ALICE, 1000, 0.0)
        assert quotas.produce(QuotaClient("alice", "other"), 1, 1.0) == 0

    def test_quotas_of_other_clients_and_kinds_do_not_count(self) -> None:
        quotas = quotas_for({(("user", "bob"),): 1.0})
        assert quotas.limited
        assert quotas.produce(ALICE, 1 << 40, 0.0) == 0
        assert quotas.fetch(QuotaClient("bob", ""), 1 << 40, 0.0) == 0

    def test_a_new_limit_takes_effect_at_once_and_removal_too(self) -> None:
        quotas = quotas_for({(("user", "alice"),): 1e9})
        assert quotas.produce(ALICE, 100_000, 0.0) == 0
        quotas.apply({(("user", "alice"),): {"producer_byte_rate": 10.0}})
        assert quotas.produce(ALICE, 1, 1.0) > 0
        quotas.apply({})
        assert not quotas.limited
        assert quotas.produce(ALICE, 100_000, 2.0) == 0

    def test_a_quota_of_an_ip_limits_no_request(self) -> None:
        quotas = ClientQuotas()
        quotas.apply({(("ip", "10.0.0.7"),): {"connection_creation_rate": 1.0}})
        assert not quotas.limited

    def test_a_long_client_id_is_measured_by_its_beginning(self) -> None:
        """The attack: 10,000 client ids of 32 KB, which are all kept."""
        ctx = SimpleNamespace(principal=ANONYMOUS, client_id="c" * 32_767)
        found = client_of(cast(RequestContext, ctx))
        assert found == QuotaClient("ANONYMOUS", "c" * CLIENT_ID_LENGTH_MAX)

    def test_client_ids_made_up_by_clients_do_not_fill_the_memory(self) -> None:
        quotas = quotas_for({(("client-id", None),): 10.0})
        for number in range(3 * CLIENTS_MAX):
            quotas.produce(QuotaClient("u", str(number)), 1, number * 10.0)
        assert len(quotas._produce._measured) <= CLIENTS_MAX
        assert len(quotas._produce._found) <= CLIENTS_MAX


def honouring_the_throttle_time(sends: list[tuple[int, int]], limit: int) -> tuple[int, float]:
    """Sends (pause before it in ms, size) one after the other, pausing for each throttle time.
    Returns how much was sent and the seconds it took, with a millisecond more for each send,
    because throttle times are rounded."""
    rate = SampledRate(WINDOWS, 0.0)
    now_ms = sent = 0
    for pause_ms, size in sends:
        now_ms += pause_ms
        rate.record(size, now_ms)
        sent += size
        now_ms += rate.throttle_ms(limit, now_ms)
    return sent, (now_ms + len(sends)) / 1000.0


class TestSampledRate:
    def test_the_example_of_the_docstring(self) -> None:
        rate = SampledRate(WINDOWS, 0.0)
        rate.record(20_000, 0.0)
        assert rate.per_second(0.0) == 2000.0
        assert rate.throttle_ms(1000.0, 0.0) == 10_000

    def test_samples_older_than_the_windows_are_dropped(self) -> None:
        rate = SampledRate(WINDOWS, 0.0)
        rate.record(20_000, 0.0)
        assert rate.per_second(WINDOW_MS - 1) > 0
        assert rate.per_second(WINDOW_MS) == 0

    @given(
        st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 100)), min_size=1, max_size=60),
        st.integers(100, 1_000_000),
    )
    def test_a_client_that_honours_the_throttle_time_stays_within_its_quota(
        self, sends: list[tuple[int, int]], limit: int
    ) -> None:
        """A send is at most what the quota allows in a second. 1. The client sends, gets a throttle
        time, pauses for that long, sends; 2. over the whole run it has not sent more than its rate
        allows, plus the burst of the windows and one request."""
        sizes = [(pause_ms, max(limit * percent // 100, 1)) for pause_ms, percent in sends]
        sent, elapsed_s = honouring_the_throttle_time(sizes, limit)
        largest = max(size for _, size in sizes)
        assert sent <= limit * (elapsed_s + WINDOWS.burst_seconds) + largest

    @given(
        st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 100_000)), min_size=1, max_size=60),
        st.integers(100, 1_000_000),
    )
    @example([(0, 14_700)] * 6, 426)
    def test_large_requests_reach_about_twice_the_quota_as_in_apache_kafka(
        self, sends: list[tuple[int, int]], limit: int
    ) -> None:
        """1. It sends what its quota allows in 20 s: 10 s of that are free, because an average over
        a window that was empty spans 10 s; 2. it pauses for the other 10 s, after which the window
        is empty again. All sends in a window of 11 s together cost their pause but 12 s at most."""
        sent, elapsed_s = honouring_the_throttle_time(sends, limit)
        assert sent <= limit * (elapsed_s * (1 + 12 / 11) + 12)

    @given(
        st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 1000)), max_size=60),
        st.integers(1, 10_000),
    )
    def test_a_reverted_record_leaves_no_trace(
        self, sends: list[tuple[int, int]], refused: int
    ) -> None:
        """A throttled fetch is recorded, and taken back in the same moment."""
        plain, disturbed = SampledRate(WINDOWS, 0.0), SampledRate(WINDOWS, 0.0)
        now_ms = 0.0
        for pause_ms, size in sends:
            now_ms += pause_ms
            plain.record(size, now_ms)
            disturbed.record(size, now_ms)
            disturbed.record(refused, now_ms)
            disturbed.record(-refused, now_ms)
        assert disturbed.per_second(now_ms) == pytest.approx(plain.per_second(now_ms))

    @given(st.floats(0, 60_000), st.integers(1, 10**9), st.integers(1, 10**6))
    def test_the_throttle_time_brings_the_rate_down_to_the_limit(
        self, begin_ms: float, size: int, limit: int
    ) -> None:
        rate = SampledRate(WINDOWS, begin_ms)
        rate.record(size, begin_ms)
        pause_ms = rate.throttle_ms(limit, begin_ms)
        idle_ms = (WINDOWS.samples - 1) * WINDOWS.window_ms
        assert pause_ms == pytest.approx(max(size / limit * 1000.0 - idle_ms, 0), abs=1)


class TestTokenBucket:
    def test_full_at_first_and_refilled_at_the_rate(self) -> None:
        bucket = TokenBucket(WINDOWS, 5000.0)
        bucket.take(11 * 2, 2.0, 5000.0)
        assert bucket.throttle_ms(2.0, 5000.0) == 0
        bucket.take(4, 2.0, 5000.0)
        assert bucket.throttle_ms(2.0, 5000.0) == 2000
        assert bucket.throttle_ms(2.0, 6000.0) == 1000
        assert bucket.throttle_ms(2.0, 7000.0) == 0

    @given(
        st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 50)), min_size=1, max_size=60),
        st.floats(0.1, 100),
    )
    def test_strict_use_never_exceeds_burst_rate_and_one_request(
        self, takes: list[tuple[int, int]], limit: float
    ) -> None:
        quotas = quotas_for({(("user", "alice"),): limit}, "controller_mutation_rate")
        now_ms = taken = 0
        for pause_ms, partitions in takes:
            now_ms += pause_ms
            if quotas.mutate(ALICE, partitions, now_ms, strict=True) == 0:
                taken += partitions
        # A pause is rounded to a millisecond, so a nearly full bucket may count as full.
        burst = limit * WINDOWS.burst_seconds
        assert taken <= burst + limit * now_ms / 1000.0 + 50 + limit * 0.001 * len(takes)

    def test_strict_refuses_without_taking_permissive_takes_and_throttles(self) -> None:
        key, alice = "controller_mutation_rate", (("user", "alice"),)
        strict = quotas_for({alice: 1.0}, key)
        assert strict.mutate(ALICE, 21, 0.0, strict=True) == 0  # 11 in the bucket: it owes 10
        assert strict.mutate(ALICE, 1, 0.0, strict=True) == 10_000
        assert strict.mutate(ALICE, 1, 10_000.0, strict=True) == 0
        permissive = quotas_for({alice: 1.0}, key)
        assert permissive.mutate(ALICE, 21, 0.0, strict=False) == 10_000
        assert permissive.mutate(ALICE, 1, 0.0, strict=False) == 11_000


class TestOtherKinds:
    def test_a_throttled_fetch_is_not_counted(self) -> None:
        quotas = quotas_for({(("user", "alice"),): 100.0}, "consumer_byte_rate")
        assert quotas.fetch_bytes_max(ALICE, 0.0) == 1000
        assert quotas.fetch_bytes_max(QuotaClient("bob", ""), 0.0) is None
        assert quotas.fetch(ALICE, 1001, 0.0) > 0
        assert quotas.fetch(ALICE, 1000, 0.0) == 0
        quotas.unfetch(ALICE, 1000, 0.0)
        assert quotas.fetch(ALICE, 1000, 0.0) == 0

    def test_request_time_is_a_percentage_of_a_thread_and_throttled_for_a_window_at_most(
        self,
    ) -> None:
        quotas = quotas_for({(("user", "alice"),): 10.0}, "request_percentage")
        second = 1_000_000_000
        assert quotas.request(ALICE, second, 0.0) == 0  # 1 s of 10 s
        assert quotas.request(ALICE, second // 100, 0.0) == 100  # 1 % of the limit too much
        assert quotas.request(ALICE, 5 * second, 0.0) == 1000

    def test_throttling_is_counted(self) -> None:
        quotas = quotas_for({(("user", "alice"),): 100.0})
        quotas.produce(ALICE, 1000, 0.0)
        quotas.produce(ALICE, 1000, 0.0)
        counted = quotas.throttled()["producer_byte_rate"]
        assert (counted.times, counted.total_ms) == (1, 10_000)
