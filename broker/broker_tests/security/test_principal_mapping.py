"""ssl.principal.mapping.rules, with the examples of Kafka's own tests and documentation."""

from __future__ import annotations

import pytest

from odradek_broker.security.principal_mapping import distinguished_name, map_name, parse_rules
from odradek_protocol.security.errors import SecurityError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("DN=duke,ou=sme,cn=adminuser,dc=com", "ADMINUSER"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_matches_wins(name: str, mapped: str) -> None:
    assert map_name(parse_rules(RULES), name) == mapped


def test_a_slash_in_a_pattern_is_escaped() -> None:
    rules = parse_rules(r"RULE:^CN=([^,]+)\/.*$/$1/, DEFAULT")
    assert map_name(rules, "CN=a/b") == "a"


def test_without_a_matching_rule_the_client_is_refused() -> None:
    with pytest.raises(SecurityError, match=r"no rule of ssl\.principal.mapping.rules applies"):
        map_name(parse_rules("RULE:^CN=x$/y/"), "CN=z")


@pytest.mark.parametrize("text", ["RULE:", "DEFAULT/L", "RULE:^CN=(/x/", "nonsense"])
def test_invalid_rules(text: str) -> None:
    with pytest.raises(SecurityError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)


def test_the_name_of_a_certificate_is_that_of_java() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "a"), ("userId", "7")),
        (("commonName", ' #x="y" '),),
    )
    assert distinguished_name(subject) == (
        'CN=\\ \\#x\\=\\"y\\"\\ ,OU=a+UID=7,O=Example\\, Inc.,C=DE'
    )
