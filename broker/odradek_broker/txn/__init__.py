"""Transactions. Not yet: the place is kept, transactional batches are refused."""
