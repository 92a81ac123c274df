"""DataFrames in, DataFrames out: nothing here reads, writes or knows where records come from."""
