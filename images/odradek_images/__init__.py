"""Our container images: their content, and how they are made with and without a registry."""
