"""The Kubernetes operator. Not yet: the place is kept."""
