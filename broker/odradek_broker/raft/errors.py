"""Violations of a quorum's invariants. Each ends the process to protect the data."""


class RaftError(Exception):
    """This node can no longer take part in the quorum safely."""


class IllegalTransitionError(RaftError):
    """A role change that is not in the table of states.py: a bug in Odradek."""


class TwoLeadersError(RaftError):
    """Two nodes claim to lead the same epoch."""


class CommittedDataError(RaftError):
    """The leader asks to truncate below the high watermark: a majority has lost its disks."""
