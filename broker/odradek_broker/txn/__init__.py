"""The transaction coordinator: which producer may write in a transaction, and how it ends.

`states.py` is the table, `transitions.py` has the effect of each request on one transactional id,
`log_records.py` the format of `__transaction_state`. Only `service.py`, `markers.py`, `verifier.py`
and `channels.py` do I/O.
"""
