"""Who sends a request: an authenticated user, or ANONYMOUS where nobody has to authenticate.

The text form is Kafka's, as in ACLs and `super.users`: `User:alice`.
"""

from dataclasses import dataclass
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
