"""Sources: topics, directories or generated rows, as DataFrames."""
