"""Whether the broker is ready and healthy, and why not (for /readyz and /healthz)."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Readiness:
    """`reasons` is empty exactly when clients are served; `restart_reasons` has those of them
    that only a restart of the process removes."""

    reasons: dict[str, str] = field(default_factory=lambda: {"start": "the broker is starting"})
    restart_reasons: dict[str, str] = field(default_factory=dict)

    def wait_for(self, what: str, reason: str) -> None:
        """Not ready because of `what`; calling it again updates the reason (progress)."""
        self.reasons[what] = reason

    def needs_restart(self, what: str, reason: str) -> None:
        """Not ready until the process is restarted: /healthz fails too."""
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
