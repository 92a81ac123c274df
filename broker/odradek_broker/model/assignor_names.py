"""Assignors of the coordinator: what `group.consumer.assignors` may say, and their names."""

_KAFKA = "org.apache.kafka.coordinator.group.assignor."

ASSIGNOR_NAMES = {
    "uniform": "uniform",
    "range": "range",
    f"{_KAFKA}UniformAssignor": "uniform",
    f"{_KAFKA}RangeAssignor": "range",
}
