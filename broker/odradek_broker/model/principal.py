"""The sender of a request: an authenticated user, or ANONYMOUS without authentication.

The text form is Kafka's, as in ACLs and `super.users`: `User:alice`.
"""

from dataclasses import dataclass, field
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    type: str
    name: str
    # Authenticated by a delegation token: has the rights of the user, but gets no further tokens.
    by_token: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
