"""The transaction coordinator: who may write in which transaction, and how each one ends.

`states.py` is the table, `transitions.py` what each request does to one transactional id,
`log_records.py` the format of `__transaction_state`; all pure. `service.py` does the I/O.
"""
