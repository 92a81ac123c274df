"""Share groups in the group coordinator."""
