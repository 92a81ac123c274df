"""HTTP for people and probes: health, readiness, metrics."""
