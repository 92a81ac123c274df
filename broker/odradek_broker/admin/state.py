"""What the broker says about itself while it starts, runs and stops (for /readyz and logs)."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Readiness:
    """`reasons` is empty exactly when clients are served."""

    reasons: dict[str, str] = field(default_factory=lambda: {"start": "the broker is starting"})

    def wait_for(self, what: str, reason: str) -> None:
        """Not ready because of `what`; saying it again updates the text (progress)."""
        self.reasons[what] = reason

    def done(self, what: str) -> None:
        self.reasons.pop(what, None)

    @property
    def ready(self) -> bool:
        return not self.reasons
