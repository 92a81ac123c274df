"""Types and tables that every layer uses. Imports nothing of the layers above."""
