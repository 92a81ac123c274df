"""Authentication and authorisation: who sends a request, and what they may do."""
