"""Delegation tokens with real brokers of ours: expiry, restarts, forwarding, secrets in logs."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_tests.conftest import StartBroker
from broker_tests.security.three_brokers import running, three_brokers
from broker_tests.security.token_support import (
    CREATE,
    DESCRIBE,
    EXPIRE,
    KEY,
    NEWEST,
    PASSWORD,
    PLAIN_MODULE,
    RENEW,
    USERS,
    UserConnection,
    addresses,
    by_token,
    plain,
    principals,
    token_settings,
)
from odradek_broker.model.principal import Principal
from odradek_broker.security.principal_data import encode_principal
from odradek_protocol.client.errors import AuthenticationError
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.messages import api
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct
from odradek_protocol.security.sasl_client import Login
from odradek_testkit.engines import RunningBroker, Server, on_apache
from odradek_testkit.waiting import wait_until

pytestmark = pytest.mark.skipif(on_apache(), reason="starts brokers of ours")

METADATA_REQUEST: dict[str, Any] = {
    "topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False,
}  # fmt: skip


def create(connection: UserConnection, *renewers: str, life_ms: int = -1) -> Any:
    answer = connection.ask(
        CREATE, NEWEST[CREATE], owner_principal_type=None, owner_principal_name=None,
        renewers=principals(*renewers), max_lifetime=life_ms,
    )  # fmt: skip
    assert answer.error_code == ErrorCode.none
    return answer


def described(connection: UserConnection) -> dict[str, Any]:
    answer = connection.ask(DESCRIBE, NEWEST[DESCRIBE], owners=None)
    assert answer.error_code == ErrorCode.none
    return {token.token_id: token for token in answer.tokens}


def expire(connection: UserConnection, hmac: bytes, period_ms: int) -> ErrorCode:
    answer = connection.ask(EXPIRE, NEWEST[EXPIRE], hmac=hmac, expiry_time_period=period_ms)
    return ErrorCode(answer.error_code)


def renew(connection: UserConnection, hmac: bytes) -> ErrorCode:
    answer = connection.ask(RENEW, NEWEST[RENEW], hmac=hmac, renew_period=-1)
    return ErrorCode(answer.error_code)


def can_log_in(address: str, login: Login) -> bool:
    try:
        UserConnection(address, login).close()
    except AuthenticationError:
        return False
    return True


def is_refused(address: str, login: Login) -> bool:
    return not can_log_in(address, login)


def test_the_controller_removes_expired_tokens(start_broker: StartBroker) -> None:
    settings = token_settings(RunningBroker, delegation_token_expiry_check_interval_ms="50")
    start_broker(settings)
    alice = UserConnection(addresses(settings)[1], plain("alice"))
    kept = create(alice)
    for _ in range(3):
        create(alice, life_ms=1)
    wait_until(lambda: set(described(alice)) == {kept.token_id})
    alice.close()


def test_an_expired_token_is_refused_before_it_is_removed(start_broker: StartBroker) -> None:
    settings = token_settings(RunningBroker)
    start_broker(settings)
    address = addresses(settings)[1]
    alice = UserConnection(address, plain("alice"))
    token = create(alice, life_ms=1)
    wait_until(lambda: time.time() * 1000 > token.max_timestamp + 1)
    assert not can_log_in(address, by_token(token.token_id, token.hmac))
    assert token.token_id in described(alice)
    alice.close()


def test_a_session_ends_with_its_token(start_broker: StartBroker) -> None:
    """The client learns when: it may renew the token and authenticate again on its connection."""
    settings = token_settings(RunningBroker)
    start_broker(settings)
    address = addresses(settings)[1]
    alice = UserConnection(address, plain("alice"))
    token = create(alice)
    assert expire(alice, token.hmac, 1_000) is ErrorCode.none
    session = UserConnection(address, by_token(token.token_id, token.hmac))
    assert 0 < session.session_lifetime_ms <= 1_000
    with pytest.raises(ConnectionError):
        wait_until(lambda: session.ask(ApiKey.METADATA, 12, **METADATA_REQUEST) is None)
    session.close()
    alice.close()


def test_tokens_survive_a_restart_and_no_secret_is_logged(tmp_path: Path) -> None:
    settings = token_settings(RunningBroker)
    address = addresses(settings)[1]
    env = {**os.environ, "ODRADEK_LOG_LEVEL": "DEBUG"}
    broker = RunningBroker(settings, directory=tmp_path / "broker", env=env)
    broker.start()
    alice = UserConnection(address, plain("alice"))
    token, removed = create(alice, "User:bob"), create(alice)
    assert expire(alice, removed.hmac, -1) is ErrorCode.none
    alice.close()
    assert broker.stop() == 0
    broker.start()
    with UserConnection(address, by_token(token.token_id, token.hmac, "SCRAM-SHA-512")) as own:
        refused = own.ask(DESCRIBE, NEWEST[DESCRIBE], owners=None)
        assert refused.error_code == ErrorCode.delegation_token_request_not_allowed
    assert not can_log_in(address, by_token(removed.token_id, removed.hmac))
    with UserConnection(address, plain("bob")) as bob:
        assert described(bob)[token.token_id].hmac == token.hmac
        assert renew(bob, token.hmac) is ErrorCode.none
    assert broker.stop() == 0
    log = broker.log()
    for secret in (base64.b64encode(token.hmac).decode(), token.hmac.hex(), repr(token.hmac), KEY):
        assert secret not in log


# --- three brokers -------------------------------------------------------------------------------


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[RunningBroker]]:
    """One listener with SASL for everybody; the brokers are the user `root`."""
    users = " ".join(f'user_{user}="{PASSWORD.format(user)}"' for user in USERS)
    own = f'username="root" password="{PASSWORD.format("root")}"'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"{PLAIN_MODULE} required {own} {users};"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
        "delegation.token.secret.key": KEY,
    }
    nodes = three_brokers(tmp_path, "SASL_PLAINTEXT", settings)
    with running(request, nodes):
        yield nodes


def address_of(node: Server) -> str:
    return node.settings["listeners"].partition("://")[2]


def test_each_broker_makes_tokens_and_knows_those_of_the_others(
    nodes: list[RunningBroker],
) -> None:
    """Two of the three are not the controller: they forward."""
    made = []
    for node in nodes:
        with UserConnection(address_of(node), plain("alice")) as alice:
            made.append(create(alice, "User:bob"))
    for node in nodes:
        for token in made:
            login = by_token(token.token_id, token.hmac)
            wait_until(partial(can_log_in, address_of(node), login))
            with UserConnection(address_of(node), login) as own:
                assert renew(own, token.hmac) is ErrorCode.delegation_token_request_not_allowed
        with UserConnection(address_of(node), plain("dave")) as dave:
            assert renew(dave, made[0].hmac) is ErrorCode.delegation_token_owner_mismatch
            assert described(dave) == {}
    with UserConnection(address_of(nodes[0]), plain("bob")) as bob:
        assert renew(bob, made[1].hmac) is ErrorCode.none
        assert expire(bob, made[2].hmac, -1) is ErrorCode.none
    gone = by_token(made[2].token_id, made[2].hmac)
    for node in nodes:
        wait_until(partial(is_refused, address_of(node), gone))


def test_an_envelope_says_that_its_client_used_a_token(nodes: list[RunningBroker]) -> None:
    """A controller refuses such a request even if the broker in front of it did not."""
    fields: dict[str, Any] = {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": [],
        "max_lifetime": -1,
    }  # fmt: skip
    data = api.request_header(CREATE, NEWEST[CREATE], 7, "alice")
    data += api.encode_request(CREATE, NEWEST[CREATE], Struct(**fields))

    def code_for(principal: Principal) -> ErrorCode:
        for node in nodes:
            with UserConnection(address_of(node), plain("root")) as root:
                answer = root.ask(
                    ApiKey.ENVELOPE, 0, request_data=data,
                    request_principal=encode_principal(principal),
                    client_host_address=bytes((127, 0, 0, 1)),
                )  # fmt: skip
            if answer.error_code != ErrorCode.not_controller:
                inner = api.decode_response(CREATE, NEWEST[CREATE], answer.response_data, 5)
                return ErrorCode(inner.error_code)
        raise AssertionError("no node is the controller")

    assert code_for(Principal("User", "alice")) is ErrorCode.none
    by_a_token = Principal("User", "alice", by_token=True)
    assert code_for(by_a_token) is ErrorCode.delegation_token_request_not_allowed
