"""Compares our broker with Apache Kafka on the same machine in one run; see bench/README.md."""
