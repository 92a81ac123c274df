"""Jobs: the parts put together, started, followed and ended."""
