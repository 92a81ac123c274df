"""The reason why a log directory failed, since the remedy depends on it.

    out of space   ENOSPC, EDQUOT: the broker can use it again once there is free space
    device         everything else, e.g. EIO, EROFS, or ENOENT after it was deleted

A lack of descriptors or memory (EMFILE, ENFILE, ENOMEM) is a failure of the process, not of a
directory: the file was not opened, so nothing is half written, and a later attempt may succeed.
"""

import errno
from enum import Enum

OUT_OF_SPACE_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))
OF_THE_PROCESS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class FailureKind(Enum):
    OUT_OF_SPACE = "out of space"
    DEVICE = "device"


def is_of_the_process(error: OSError) -> bool:
    return error.errno in OF_THE_PROCESS


def kind_of(error: OSError) -> FailureKind:
    if error.errno in OUT_OF_SPACE_ERRNOS:
        return FailureKind.OUT_OF_SPACE
    return FailureKind.DEVICE
