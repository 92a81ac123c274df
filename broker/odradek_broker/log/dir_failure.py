"""Why a log directory failed: what can be done about it depends on that.

    out of space   ENOSPC, EDQUOT: room on the file system brings the directory back
    device         all else, such as EIO, EROFS, or ENOENT when it was deleted under the broker

A lack of descriptors or memory is the process's, and no failure of a directory: the file was not
opened, so nothing is half written, and the same works again as soon as others let go.
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
