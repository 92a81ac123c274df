"""Records for people: read, filter, mask, show, export, produce. Nothing here knows HTTP."""
