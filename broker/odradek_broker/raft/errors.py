"""What must never happen in a quorum. Each of these ends the process rather than the data."""


class RaftError(Exception):
    """This node can no longer take part in the quorum safely."""


class IllegalTransitionError(RaftError):
    """A role change that the table in states.py does not have: a bug of ours."""


class TwoLeadersError(RaftError):
    """Two nodes claim to lead the same epoch."""


class CommittedDataError(RaftError):
    """The leader asks to truncate below the high watermark: a majority has lost its disks."""
