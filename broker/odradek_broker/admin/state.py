"""What the broker says about itself while it starts, runs and stops (for /readyz and logs)."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Readiness:
    """`reasons` is empty exactly when clients are served; `restart_reasons` are those of them
    that only a restart of the process can end."""

    reasons: dict[str, str] = field(default_factory=lambda: {"start": "the broker is starting"})
    restart_reasons: dict[str, str] = field(default_factory=dict)

    def wait_for(self, what: str, reason: str) -> None:
        """Not ready because of `what`; saying it again updates the text (progress)."""
        self.reasons[what] = reason

    def needs_restart(self, what: str, reason: str) -> None:
        """Not ready, and it does not get better by itself: /healthz is false too."""
        self.reasons[what] = self.restart_reasons[what] = reason

    def done(self, what: str) -> None:
        self.reasons.pop(what, None)
        self.restart_reasons.pop(what, None)

    @property
    def ready(self) -> bool:
        return not self.reasons

    @property
    def healthy(self) -> bool:
        return not self.restart_reasons
