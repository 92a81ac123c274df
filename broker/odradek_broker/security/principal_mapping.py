"""`ssl.principal.mapping.rules`: the distinguished name of a certificate → the user's name.

    RULE:^CN=(.*?),OU=Users.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name wins; `L` and `U` change the case of the result;
DEFAULT is the name as it is. Without a matching rule the client is refused, as in Kafka.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from odradek_protocol.security.errors import SecurityError

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\$(\d+)")

# Names of attributes, as `ssl` gives them, that RFC 2253 abbreviates.
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = re.compile(r'([,=+<>#;"\\])')


@dataclass(frozen=True)
class MappingRule:
    """`pattern` None is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        text = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": text.lower(), "U": text.upper()}.get(self.case, text)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Raises SecurityError."""
    rules, at = [], 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise SecurityError(
                f"ssl.principal.mapping.rules: {text[at:]!r} must be DEFAULT or "
                "RULE:pattern/replacement/[LU]"
            )
        try:
            pattern = None if match[1] else re.compile(match[2])
        except re.error as error:
            raise SecurityError(
                f"ssl.principal.mapping.rules: pattern {match[2]!r}: {error}"
            ) from None
        rules.append(MappingRule(pattern, match[3] or "", match[4] or ""))
        at = match.end()
    return tuple(rules)


def map_name(rules: Sequence[MappingRule], name: str) -> str:
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found
    raise SecurityError(f"no rule of ssl.principal.mapping.rules applies to {name}")


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """The `subject` of `getpeercert()` as Java's RFC 2253 text: `CN=alice,OU=Users,O=Example`."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(subject))


def _attribute(one: tuple[str, str]) -> str:
    name, value = one
    escaped = _ESCAPED.sub(r"\\\1", value)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"
