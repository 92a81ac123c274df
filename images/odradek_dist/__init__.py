"""Builds releases: wheels, checksums, the chart, install.yaml (`make dist`, `make release`)."""
