"""Operating system errors about files, as sentences that a model can act on."""

from __future__ import annotations

import errno
from pathlib import Path

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename

_REASONS = {
    errno.EACCES: "permission denied. Choose another place, or ask to change the permissions",
    errno.EPERM: "the system does not permit it. Choose another place",
    errno.ENOSPC: "the disk is full. Nothing was changed; free some space before you try again",
    errno.EDQUOT: "the disk quota is exceeded. Nothing was changed; free some space before you try again",
    errno.EFBIG: "the file would be larger than the system allows. Nothing was changed",
    errno.EROFS: "the file system is read-only. Choose another place",
    errno.ENAMETOOLONG: "the path is too long: each part may have 255 bytes, and the full path 4,096",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENOENT: "it does not exist",
    errno.EISDIR: "it is a directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EEXIST: "a file exists, but a directory is required",
    errno.ENXIO: "it is a socket or pipe, and nothing is connected to its other end",
    errno.EIO: "the disk reported an error",
    errno.ETXTBSY: "it is a running program",
}


def build_file_error(action: str, path: Path, error: OSError) -> WorkspaceError:
    """Return an error for a failed `action`, such as "read" or "write"."""
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return WorkspaceError(f"Cannot {action} {escape_filename(path)}: {reason}.")
