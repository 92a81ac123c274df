"""The `odradek` command: thin, one file per command group."""
