"""Stories on a real kind cluster: `make e2e`; each in a namespace of its own. See docs/how-to/kind.md."""
