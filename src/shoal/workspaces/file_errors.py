"""Operating system errors about files, as sentences that a model can act on."""

from __future__ import annotations

import errno
from pathlib import Path

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.workspace_texts import format_workspace_notice

_EXPLAINED = frozenset(
    {"EACCES", "EPERM", "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "ENAMETOOLONG", "ELOOP", "ENOENT", "EISDIR"}
    | {"ENOTDIR", "EEXIST", "ENXIO", "EIO", "ETXTBSY"}
)
"""Errors that have a section of their name in `notices.md`."""


def build_file_error(action: str, path: Path, error: OSError) -> WorkspaceError:
    """Return an error for a failed `action`, such as "read" or "write"."""
    name = errno.errorcode.get(error.errno or 0, "")
    reason = format_workspace_notice(name) if name in _EXPLAINED else error.strerror or str(error)
    return WorkspaceError(
        format_workspace_notice("file_error", action=action, path=escape_filename(path), reason=reason)
    )
