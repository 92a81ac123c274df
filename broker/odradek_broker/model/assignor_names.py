"""The assignors of the group coordinator: the valid values of `group.consumer.assignors`."""

_KAFKA = "org.apache.kafka.coordinator.group.assignor."

ASSIGNOR_NAMES = {
    "uniform": "uniform",
    "range": "range",
    f"{_KAFKA}UniformAssignor": "uniform",
    f"{_KAFKA}RangeAssignor": "range",
}
