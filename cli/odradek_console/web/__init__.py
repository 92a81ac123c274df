"""The common part of all pages: sessions, protection, rendering, changes, charts."""
