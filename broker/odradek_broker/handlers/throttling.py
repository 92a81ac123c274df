"""Applies client quotas to requests: `throttle_time_ms` in the response, and a pause afterwards.

The response is sent at once; then the connection is not read for the time that the response names
(KIP-219). So a client that does not heed `throttle_time_ms` cannot send more either. Requests
between brokers are exempt. Called only if `ctx.broker.quotas.limited`.
"""

from odradek_broker.handlers.context import RequestContext
from odradek_broker.security.quotas import QuotaClient
from odradek_protocol.error_codes import ErrorCode, KafkaError

# Of a client id: measurements are kept by it, and a client may send one of 32 KB.
CLIENT_ID_LENGTH_MAX = 255


def client_of(ctx: RequestContext) -> QuotaClient:
    return QuotaClient(ctx.principal.name, (ctx.client_id or "")[:CLIENT_ID_LENGTH_MAX])


def throttle_produce(ctx: RequestContext, *, answered: bool) -> int:
    """The bytes of the request count, and the time for it unless there is no response (acks=0)."""
    quotas, client = ctx.broker.quotas, client_of(ctx)
    now_ms = ctx.broker.clock.monotonic_ms()
    throttle_ms = quotas.produce(client, ctx.request_bytes, now_ms)
    if answered:
        throttle_ms = max(throttle_ms, quotas.request(client, ctx.busy_ns(), now_ms))
    return _pause(ctx, throttle_ms)


def throttle_fetch(ctx: RequestContext, size_bytes: int) -> int:
    """If it is throttled, the records must not be sent: they are not counted."""
    quotas, client = ctx.broker.quotas, client_of(ctx)
    now_ms = ctx.broker.clock.monotonic_ms()
    of_request_ms = quotas.request(client, ctx.busy_ns(), now_ms)
    of_bytes_ms = quotas.fetch(client, size_bytes, now_ms)
    if of_request_ms > 0 and of_bytes_ms == 0:
        quotas.unfetch(client, size_bytes, now_ms)
    return _pause(ctx, max(of_request_ms, of_bytes_ms))


def fetch_bytes_max(ctx: RequestContext, asked: int) -> int:
    """A consumer gets no more than its quota allows in all windows together."""
    now_ms = ctx.broker.clock.monotonic_ms()
    allowed = ctx.broker.quotas.fetch_bytes_max(client_of(ctx), now_ms)
    return asked if allowed is None else min(asked, allowed)


def throttle_request(ctx: RequestContext, decided_ms: int) -> int:
    """`decided_ms` is in the response already: the controller throttles the client."""
    now_ms = ctx.broker.clock.monotonic_ms()
    of_request_ms = ctx.broker.quotas.request(client_of(ctx), ctx.busy_ns(), now_ms)
    return _pause(ctx, max(of_request_ms, decided_ms))


def _pause(ctx: RequestContext, throttle_ms: int) -> int:
    if throttle_ms > 0:
        ctx.throttle(throttle_ms)
    return throttle_ms


class MutationQuota:
    """The controller's quota for one request that creates or deletes partitions (KIP-599).

    `charge` is called for each topic that is about to be changed. Since the version `strict_from`,
    clients know THROTTLING_QUOTA_EXCEEDED: topics beyond the quota are refused. Older clients get
    the records they asked for, and are throttled afterwards.
    """

    def __init__(self, ctx: RequestContext, strict_from: int) -> None:
        self._ctx = ctx
        self._strict = ctx.api_version >= strict_from
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Raises KafkaError if the topic has to be refused."""
        broker = self._ctx.broker
        if not broker.quotas.limited:
            return
        now_ms = broker.clock.monotonic_ms()
        throttle_ms = broker.quotas.mutate(
            client_of(self._ctx), partitions, now_ms, strict=self._strict
        )
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        if throttle_ms and self._strict:
            raise KafkaError(ErrorCode.throttling_quota_exceeded)
