"""Listening sockets, the set of connections, and the limits over all of them."""

import asyncio
import errno
import logging
import socket
from collections import Counter

from odradek_broker.handlers.broker_context import BrokerContext
from odradek_broker.model.hosts import canonical_host
from odradek_broker.network.connection import (
    CLOSED_BY_CLIENT,
    CUT_OFF,
    READ_FAILED,
    Connection,
)
from odradek_broker.network.dispatcher import Dispatcher
from odradek_broker.network.memory import RequestMemory
from odradek_broker.network.outgoing import WRITE_FAILED, Outgoing
from odradek_broker.network.peek import is_broker
from odradek_broker.network.receiving import (
    SWEEP_SECONDS,
    OnStarved,
    Receiving,
    ignore_starved,
)
from odradek_broker.network.tls_connection import HANDSHAKE_FAILED, TlsConnection
from odradek_broker.runtime import clock
from odradek_broker.runtime.descriptors import Descriptors, current_limit, share
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.poller import Poller
from odradek_broker.runtime.rate_limited_log import RateLimitedLog
from odradek_broker.runtime.tls_socket import server_side, shared_buffer
from odradek_broker.security.authentication import Authentication
from odradek_broker.security.connection_limits import ConnectionLimits
from odradek_broker.security.rates import Windows

logger = logging.getLogger(__name__)

# The largest read of a client that sends much; larger frames are read into buffers of their own.
# Several batches of 64 KB in flight arrive in one read: adr/0008.
SCRATCH_BYTES = 256 * 1024
# New connections per wake-up, so that a storm of them does not starve the established ones.
ACCEPT_MAX = 64
# How long accepting pauses when the process has no file descriptors left.
ACCEPT_REST_SECONDS = 0.5
IDLE_SWEEP_SECONDS = 10.0
# How many connections beyond the limit may prove that they are a broker's, and how long they have.
# The oldest is closed for the next: a broker sends its first request right after it has connected.
PROBATION_MAX = 16
PROBATION_MS = 3_000
# TLS handshakes at a time: each has some 60 KB of memory, and no client is known yet.
HANDSHAKES_MAX = 128

IDLE = "idle (connections.max.idle.ms)"
STOPPING = "the broker is stopping"
TOO_MANY = "too many connections"
TOO_FAST = "connection_creation_rate of its address"
MADE_ROOM = "closed as the longest idle one, for a connection of a broker"
# Everyday reasons, logged at level debug only.
ORDINARY = frozenset((CLOSED_BY_CLIENT, CUT_OFF, READ_FAILED, WRITE_FAILED, IDLE, STOPPING))


def bound_socket(listener: Listener) -> socket.socket:
    """A socket at the address of the listener; a port in use is an OSError."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((listener.host, listener.port))
    except OSError:
        sock.close()
        raise
    return sock


class Server:
    def __init__(
        self,
        broker: BrokerContext,
        loop: asyncio.AbstractEventLoop,
        poller: Poller,
        descriptors: Descriptors | None = None,
        *,
        on_starved: OnStarved = ignore_starved,
    ) -> None:
        settings = broker.settings
        descriptors = descriptors or share(current_limit())
        self.loop = loop
        self.poller = poller
        self.clock = broker.clock
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.frame_bytes_max = settings.int("socket.request.max.bytes")
        self.memory = RequestMemory(
            settings.int("queued.max.request.bytes"), self.frame_bytes_max, poller.call_soon
        )
        self.receiving = Receiving(
            self.memory,
            broker.metrics,
            settings.int("odradek.request.receive.timeout.ms"),
            lambda: self.connections,
            on_starved,
        )
        listeners = settings.listeners
        # Listeners that only brokers use: the inter-broker one, if clients have another.
        self.broker_listeners = listeners.controller_names
        if len(listeners.brokers) > 1:
            self.broker_listeners |= {listeners.inter_broker_name}
        self.dispatcher = Dispatcher(broker)
        self.connections: set[Connection] = set()
        self._metrics = broker.metrics
        self._per_ip: Counter[str] = Counter()
        self.connections_max = min(settings.int("max.connections"), descriptors.connections)
        self._metrics.connections_max = self.connections_max
        # The kernel assigns the lowest free descriptor: a number beyond these limits means that few
        # are left, whatever uses the others.
        self._client_files_max = descriptors.limit - descriptors.reserve
        self._files_max = descriptors.limit - descriptors.reserve // 2
        # Accepted beyond the limit, until the first request shows whether a broker sent it; by the
        # time of the accept.
        self._probation: dict[Connection, float] = {}
        self.limits = ConnectionLimits(
            settings,
            Windows.of(settings.int("quota.window.num"), settings.int("quota.window.size.seconds")),
            self.broker_listeners,
        )
        self._security = {
            name: one
            for name, one in broker.listener_security.items()
            if one.tls is not None or one.sasl is not None
        }
        self._tls_buffer = shared_buffer() if self._security else memoryview(b"")
        # Accepted beyond connection_creation_rate: nothing is read, and they are closed later.
        self._throttled: set[socket.socket] = set()
        # TLS handshakes that are not complete, by the time of the accept.
        self._handshakes: dict[Connection, float] = {}
        self._handshake_ms = settings.int("odradek.ssl.handshake.timeout.ms")
        self._idle_ms = settings.int("connections.max.idle.ms")
        self._backlog = settings.int("socket.listen.backlog.size")
        self._buffers = {
            socket.SO_SNDBUF: settings.int("socket.send.buffer.bytes"),
            socket.SO_RCVBUF: settings.int("socket.receive.buffer.bytes"),
        }
        self._limited = RateLimitedLog(logger)
        self._listening: list[tuple[socket.socket, str]] = []
        self._to_flush: list[Outgoing] = []
        self._pass = -1
        self._pass_ms = 0.0
        self._sweep = loop.call_later(IDLE_SWEEP_SECONDS, self._close_idle)
        self._receiving_sweep = loop.call_later(SWEEP_SECONDS, self._sweep_receiving)

    # --- accepting -----------------------------------------------------------------------

    def bind(self, listener: Listener) -> tuple[str, int]:
        """Binds without accepting yet; a port in use is an OSError."""
        sock = bound_socket(listener)
        sock.setblocking(False)
        self._listening.append((sock, listener.name))
        return sock.getsockname()[0], sock.getsockname()[1]

    def start_accepting(self) -> None:
        for sock, name in self._listening:
            sock.listen(self._backlog)
            self.loop.add_reader(sock.fileno(), self._accept, sock, name)

    def stop_accepting(self) -> None:
        for sock, _ in self._listening:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()

    def _accept(self, listening: socket.socket, listener: str) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                sock, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._rest(listening, listener, error)
                    return
                continue  # the client disconnected before it was accepted
            self._admit(sock, listener, canonical_host(address[0]))
            pause_ms = self.limits.accepted(listener, self.pass_ms())
            if pause_ms > 0:
                self._accept_later(listening, listener, pause_ms / 1000.0)
                return

    def _rest(self, listening: socket.socket, listener: str, error: OSError) -> None:
        self._limited.error(
            "rest",
            self.pass_ms(),
            "listener %s accepts no connections for %.1f s: %s (%d connections, ulimit -n)",
            listener,
            ACCEPT_REST_SECONDS,
            error.strerror,
            len(self.connections),
        )
        self._accept_later(listening, listener, ACCEPT_REST_SECONDS)

    def _accept_later(self, listening: socket.socket, listener: str, seconds: float) -> None:
        self.loop.remove_reader(listening.fileno())

        def again() -> None:
            if (listening, listener) in self._listening:
                self.loop.add_reader(listening.fileno(), self._accept, listening, listener)

        self.loop.call_later(seconds, again)

    def _admit(self, sock: socket.socket, listener: str, host: str) -> None:
        self._metrics.connections_accepted += 1
        number = sock.fileno()
        if (
            self._per_ip[host] >= self.limits.per_ip_max(host)
            or self.limits.is_full(listener)
            or number >= self._files_max
        ):
            self._refuse(sock, host)
            return
        throttled_ms = self.limits.throttled_ms(host, self.pass_ms())
        if throttled_ms > 0:
            self._metrics.connection_closed(TOO_FAST)
            self._throttled.add(sock)
            self.loop.call_later(throttled_ms / 1000.0, self._close_throttled, sock)
            return
        full = len(self.connections) >= self.connections_max or number >= self._client_files_max
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffers.items():
            if size > 0:  # -1 leaves it to the kernel, which adapts it
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        connection = self._connection(sock, listener, host)
        self.connections.add(connection)
        self._per_ip[host] += 1
        self.limits.opened(listener)
        self._metrics.connections += 1
        if not full:
            return
        if listener in self.broker_listeners:
            self._make_room()
        else:
            self._put_on_probation(connection)

    def _connection(self, sock: socket.socket, listener: str, host: str) -> Connection:
        security = self._security.get(listener)
        if security is None:
            return Connection(self, sock, listener, host)
        connection: Connection
        if security.tls is None:
            connection = Connection(self, sock, listener, host)
        else:
            tls = security.tls
            secured = server_side(tls.context, sock, self._tls_buffer)
            connection = TlsConnection(self, secured, listener, host, tls.to_principal)
            self._handshake_began(connection)
        if security.sasl is not None:
            connection.authentication = Authentication(security.sasl, connection.authenticated)
            connection.frame_bytes_max = security.sasl.receive_bytes_max
        return connection

    def _handshake_began(self, connection: Connection) -> None:
        """Beyond the limit the oldest of the address with most of them makes room: real clients
        need milliseconds, and one address cannot end the handshakes of others."""
        if len(self._handshakes) >= HANDSHAKES_MAX:
            by_host = Counter(one.client_host for one in self._handshakes)
            ((host, _),) = by_host.most_common(1)
            oldest = next(one for one in self._handshakes if one.client_host == host)
            oldest.close(f"{HANDSHAKE_FAILED}: too many at a time")
        self._handshakes[connection] = self.pass_ms()

    def handshake_ended(self, connection: Connection) -> None:
        self._handshakes.pop(connection, None)

    def _end_handshakes(self, now_ms: float) -> None:
        late = [c for c, at in self._handshakes.items() if now_ms - at >= self._handshake_ms]
        for connection in late:
            connection.close(f"{HANDSHAKE_FAILED}: not complete after {self._handshake_ms} ms")

    def _close_throttled(self, sock: socket.socket) -> None:
        self._throttled.discard(sock)
        sock.close()

    def _refuse(self, sock: socket.socket, host: str) -> None:
        self._limited.warning(
            TOO_MANY,
            self.pass_ms(),
            "refused a connection from %s: too many connections (%d; max.connections, "
            "max.connections.per.ip, ulimit -n)",
            host,
            len(self.connections),
        )
        self._metrics.connection_closed(TOO_MANY)
        sock.close()

    # --- room for other brokers ----------------------------------------------------------

    def _put_on_probation(self, connection: Connection) -> None:
        """It may stay if its first request is a broker's."""
        if len(self._probation) >= PROBATION_MAX:
            next(iter(self._probation)).close(self._too_many())
        connection.on_probation = True
        self._probation[connection] = self.pass_ms()

    def passes_probation(self, connection: Connection, client_id: str | None) -> bool:
        """Called with its first request; the connection of a client is closed."""
        if not is_broker(client_id):
            connection.close(self._too_many())
            return False
        connection.on_probation = False
        del self._probation[connection]
        self._make_room()
        return True

    def _make_room(self) -> None:
        """Closes the connection that is idle for longest, as Kafka does, for one of a broker."""
        if len(self.connections) - len(self._probation) <= self.connections_max:
            return
        idle = [c for c in self.connections if c.quiet and not c.on_probation]
        if idle:
            min(idle, key=lambda c: c.last_active_ms).close(MADE_ROOM)

    def _end_probation(self, now_ms: float) -> None:
        late = [c for c, since_ms in self._probation.items() if now_ms - since_ms >= PROBATION_MS]
        for connection in late:
            connection.close(self._too_many())

    def _too_many(self) -> str:
        return f"{TOO_MANY}: {self.connections_max} are accepted (max.connections, ulimit -n)"

    # --- called by connections -----------------------------------------------------------

    def pass_ms(self) -> float:
        """Monotonic time, read once per loop pass: precise enough to find idle connections."""
        if self._pass != self.poller.passes:
            self._pass = self.poller.passes
            self._pass_ms = self.clock.monotonic_ms()
        return self._pass_ms

    def flush_soon(self, connection: Outgoing) -> None:
        """Responses of one pass are sent together: one sendmsg per connection."""
        if connection.flush_queued:
            return
        connection.flush_queued = True
        if not self._to_flush:
            self.poller.call_soon(self._flush_all)
        self._to_flush.append(connection)

    def _flush_all(self) -> None:
        to_flush, self._to_flush = self._to_flush, []
        now_ns = clock.now_ns()
        for connection in to_flush:
            connection.flush_queued = False
            if not connection.closed:
                now_ns = connection.flush(now_ns)

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        self._probation.pop(connection, None)
        self.limits.closed(connection.listener)
        self._handshakes.pop(connection, None)
        host = connection.client_host
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        self._metrics.connections -= 1
        kind = reason.split(":")[0]
        self._metrics.connection_closed(kind)
        if kind in ORDINARY:
            logger.debug("connection from %s closed: %s", host, reason)
        else:
            log = self._limited.warning if kind == TOO_MANY else self._limited.info
            log(kind, self.pass_ms(), "connection from %s closed: %s", host, reason)

    # --- housekeeping --------------------------------------------------------------------

    def _close_idle(self) -> None:
        self._sweep = self.loop.call_later(IDLE_SWEEP_SECONDS, self._close_idle)
        oldest_ms = self.clock.monotonic_ms() - self._idle_ms
        idle = [
            connection
            for connection in self.connections
            if connection.last_active_ms < oldest_ms and not connection.awaits_answer
        ]
        for connection in idle:
            connection.close(IDLE)

    def _sweep_receiving(self) -> None:
        self._receiving_sweep = self.loop.call_later(SWEEP_SECONDS, self._sweep_receiving)
        now_ms = self.clock.monotonic_ms()
        self.receiving.sweep(now_ms)
        self._end_probation(now_ms)
        self._end_handshakes(now_ms)

    async def drain(self, timeout: float) -> None:
        """Waits until all requests are answered, at most `timeout` seconds; then closes all."""
        deadline = self.loop.time() + timeout
        while self.loop.time() < deadline and not all(c.quiet for c in self.connections):
            await asyncio.sleep(0.01)
        for connection in tuple(self.connections):
            connection.close(STOPPING)
        for sock in tuple(self._throttled):
            self._close_throttled(sock)
        self._sweep.cancel()
        self._receiving_sweep.cancel()
