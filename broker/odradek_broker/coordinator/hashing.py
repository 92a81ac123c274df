"""The partition of its internal topic to which a group or a transactional id belongs."""


def java_hash(text: str) -> int:
    """Java's String.hashCode, signed: over UTF-16 code units. `java_hash("ab") == 3105`."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """As Kafka's brokers and tools compute it: the hash without its sign bit, modulo."""
    return (java_hash(key) & 0x7FFFFFFF) % partitions
