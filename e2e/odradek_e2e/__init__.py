"""Real Kubernetes for tests: its programs, a control plane of processes, a kind cluster."""
