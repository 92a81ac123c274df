"""Tests of odradek_broker.group."""
