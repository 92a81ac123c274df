"""Names for the values that every layer passes around. Imports nothing of ours."""
