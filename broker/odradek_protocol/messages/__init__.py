"""Requests and responses of every API, encoded and decoded for every version."""
