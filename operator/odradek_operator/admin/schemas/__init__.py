"""Two requests that kafka-python's admin client does not have, in its own schema format."""
