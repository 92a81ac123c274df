"""Names for the values that every layer passes around. Imports nothing of the layers above."""
