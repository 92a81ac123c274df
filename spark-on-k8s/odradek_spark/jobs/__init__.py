"""Jobs: sources, steps and sinks combined, started, monitored and stopped."""
