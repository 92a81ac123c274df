"""TLS over memory, on real sockets: records of any size, blocked writes, key updates, the end."""

from __future__ import annotations

import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from odradek.testing.certificates import write_certificates
from odradek_broker.runtime.tls_socket import (
    PIECE_BYTES,
    WRITE_BYTES_MAX,
    TlsSocket,
    server_side,
    shared_buffer,
)

HOST = "127.0.0.1"


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of a client that trusts it."""
    ca_file, key_store = tmp_path / "ca.pem", tmp_path / "server.pem"
    write_certificates(ca_file, key_store)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(key_store)
    server.num_tickets = 0
    return server, ssl.create_default_context(cafile=str(ca_file))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as sock:
        yield sock


def accepted(listening: socket.socket, context: ssl.SSLContext) -> tuple[TlsSocket, socket.socket]:
    """The handshake is done; the plain socket below it is returned too, to wait for it."""
    plain, _ = listening.accept()
    plain.setblocking(False)
    secured = server_side(context, plain, shared_buffer())
    while wants := secured.handshake():
        wait(plain, write=wants == "write")
    return secured, plain


def connected(
    listening: socket.socket, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> tuple[TlsSocket, socket.socket, ssl.SSLSocket]:
    made: list[ssl.SSLSocket] = []

    def connect() -> None:
        plain = socket.create_connection(listening.getsockname(), 60)
        made.append(contexts[1].wrap_socket(plain, server_hostname=HOST))

    thread = threading.Thread(target=connect)
    thread.start()
    secured, plain = accepted(listening, contexts[0])
    thread.join()
    return secured, plain, made[0]


def wait(plain: socket.socket, *, write: bool = False) -> None:
    with socket.socket(fileno=os.dup(plain.fileno())) as copy:
        copy.settimeout(60)
        if write:
            assert select.select([], [copy], [], 60)[1]
        else:
            with suppress(ConnectionError):
                copy.recv(1, socket.MSG_PEEK)


def received(secured: TlsSocket, plain: socket.socket, buffer_bytes: int) -> bytes:
    """All bytes until the end of the stream, read as connections do."""
    data, view = bytearray(), memoryview(bytearray(buffer_bytes))
    while True:
        try:
            count = secured.recv_into(view)
        except BlockingIOError:
            wait(plain)
            continue
        if not count:
            return bytes(data)
        data += view[:count]


@pytest.mark.parametrize("buffer_bytes", [1, 1000, PIECE_BYTES, 1_000_000])
def test_records_of_any_size_arrive(
    listening: socket.socket,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    buffer_bytes: int,
) -> None:
    rng = Random(3)
    sizes = [1, 10, 1024, 16_384, 40_000] if buffer_bytes > 1 else [1, 10, 1024]
    parts = [rng.randbytes(rng.choice(sizes)) for _ in range(60)]
    secured, plain, client = connected(listening, contexts)

    def send() -> None:
        for part in parts:
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    assert received(secured, plain, buffer_bytes) == b"".join(parts)
    thread.join()
    client.close()
    secured.close()


def test_a_write_that_blocks_is_repeated_and_sent_once(
    listening: socket.socket, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """1. The client does not read: writes block. 2. It reads: every byte arrives, in order."""
    data = Random(4).randbytes(12_000_000)
    secured, plain, client = connected(listening, contexts)
    at, blocked = 0, 0
    found = bytearray()
    reader = threading.Thread(target=_read_all, args=(client, found, len(data)))
    while at < len(data):
        try:
            count = secured.send(memoryview(data)[at:])
            assert 0 < count <= WRITE_BYTES_MAX
            at += count
        except BlockingIOError:
            blocked += 1
            if blocked == 1:
                reader.start()
            wait(plain, write=True)
    assert blocked
    secured.close()
    reader.join()
    assert bytes(found) == data
    client.close()


def _read_all(client: ssl.SSLSocket, found: bytearray, size: int) -> None:
    while len(found) < size:
        part = client.recv(100_000)
        assert part, f"the stream ended after {len(found)} of {size} bytes"
        found += part


def test_a_range_of_a_file(
    listening: socket.socket,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    tmp_path: Path,
) -> None:
    data = Random(5).randbytes(100_000)
    (tmp_path / "file").write_bytes(data)
    secured, _, client = connected(listening, contexts)
    with open(tmp_path / "file", "rb") as file:
        assert secured.sendmsg([b"head", b"er"], (), socket.MSG_MORE) == 6
        at = 10
        while count := secured.send_file(file.fileno(), at, len(data)):
            at += count
    found = bytearray()
    _read_all(client, found, 6 + len(data) - 10)
    assert bytes(found) == b"header" + data[10:]
    client.close()
    secured.close()


def test_goodbye_without_the_end_of_the_connection(
    listening: socket.socket, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """close_notify ends the stream, although the client keeps the TCP connection open."""
    secured, plain, client = connected(listening, contexts)
    client.sendall(b"last words")
    client.settimeout(0.0)
    with suppress(ssl.SSLWantReadError):
        client.unwrap()
    wait(plain)
    found = b""
    while len(found) < 10:
        with suppress(BlockingIOError):
            found += secured.recv(100)
    assert found == b"last words"
    while True:
        with suppress(BlockingIOError):
            assert secured.recv(100) == b""
            break
    assert secured.pending(), "the owner has to find the end without an event"
    client.close()
    secured.close()


def test_a_forged_record_is_an_error(
    listening: socket.socket, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    secured, plain, client = connected(listening, contexts)
    raw = socket.socket(fileno=client.detach())
    raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        received(secured, plain, 100)
    assert raw.recv(100)[:1] == b"\x17", "the client gets an alert, which is encrypted"
    raw.close()
    secured.close()


def test_key_updates_are_answered(
    listening: socket.socket, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """OpenSSL's client asks for new keys ("K"), and both directions work with them."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the program openssl is not installed")
    address = f"{HOST}:{listening.getsockname()[1]}"
    with subprocess.Popen(
        [openssl, "s_client", "-connect", address, "-tls1_3"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as client:  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        secured, plain = accepted(listening, contexts[0])
        for word in (b"one\n", b"two\n", b"three\n"):
            client.stdin.write(b"K\n")
            client.stdin.flush()
            while b"KEYUPDATE" not in client.stdout.readline():
                pass
            client.stdin.write(word)
            client.stdin.flush()
            found = b""
            while found != word:
                try:
                    found += secured.recv(100)
                except BlockingIOError:
                    wait(plain)
            assert secured.send(b"got " + word) == len(word) + 4
            while b"got " + word != client.stdout.readline():
                pass
        assert not secured.read_wants_write
        secured.close()
        client.stdin.close()
