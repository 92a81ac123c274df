def dump_log() -> None:
    """x"""
