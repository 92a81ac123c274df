"""What is released: wheels, checksums, the chart, install.yaml (`make dist`, `make release`)."""
