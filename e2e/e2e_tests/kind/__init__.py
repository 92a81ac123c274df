"""Stories on a kind cluster (`make e2e`), each in its own namespace: docs/how-to/kind.md."""
