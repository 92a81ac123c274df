"""A real Kubernetes control plane for tests, clients of it, and stand-ins for pods."""
