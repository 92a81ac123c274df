"""A real Kubernetes control plane for tests, and what stands in for pods on it."""
