"""The web console: `odradek console --bootstrap host:9092`. See docs/how-to/console.md."""
