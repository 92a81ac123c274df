"""Dashboards of Grafana for the Helm chart, written from short definitions."""
