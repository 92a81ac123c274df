"""Share groups: mirrors odradek_broker/share."""
