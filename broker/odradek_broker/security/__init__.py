"""Authentication and authorisation. Not yet: the place is kept, listeners are plaintext."""
