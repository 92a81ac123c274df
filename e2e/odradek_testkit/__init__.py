"""The test kit: engines, clusters of processes, load and checker, Kubernetes' control plane."""
