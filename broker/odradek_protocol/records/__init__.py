"""Record batches: layout, reading, building, compression."""
