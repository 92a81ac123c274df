"""Where results go. Each sink's docstring names its guarantee."""
