"""Our container images: what is in them, and how they are made with and without a registry."""
