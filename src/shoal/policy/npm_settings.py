"""Settings of a project that npm obeys even for commands that only read: programs, and places to write to."""

from __future__ import annotations

import re
from pathlib import Path

from shoal.core.text.filenames import escape_filename
from shoal.policy.shell.known_commands import NPM_SETTINGS

_HARMLESS = re.compile(
    r"(?:@[^:=]+:)?registry|//[^=]*|access|always-auth|audit(?:-level)?|auto-install-peers|color|dedupe-[a-z-]+"
    r"|depth|engine-strict|fetch-[a-z-]+|force|foreground-scripts|fund|(?:public-|shamefully-)?hoist(?:-pattern)?"
    r"|ignore-scripts|include|init-(?:author-[a-z]+|license|version)|install-(?:links|strategy)"
    r"|legacy-peer-deps|link-workspace-packages|lockfile|lockfile-version|loglevel|maxsockets|message"
    r"|node-linker|omit|package-lock|prefer-[a-z-]+|progress|resolution-mode|save(?:-[a-z-]+)?"
    r"|strict-(?:peer-dep[a-z]*|ssl)|tag(?:-version-prefix)?|unicode|update-notifier|workspaces(?:-update)?"
)
"""Settings that name no program and no place to write to."""
_MAX_BYTES = 100_000


def find_npm_setting(directory: str, root: str) -> str | None:
    """Return the first setting, with its file, that may be harmful in a directory of a project, or None."""
    place = directory
    while True:
        if found := _find_harmful_setting(Path(place, NPM_SETTINGS)):
            return found
        if place == root or "/" not in place[1:]:
            return None
        place = place.rpartition("/")[0]


def _find_harmful_setting(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{escape_filename(str(file))}, which cannot be read ({error.strerror})"
    if len(content) > _MAX_BYTES:
        return f"{escape_filename(str(file))}, which is too long to check"
    for line in content.decode("utf-8", "replace").splitlines():
        name = line.partition("=")[0].strip().removesuffix("[]").strip("'\"")
        if name and name[0] not in "#;" and not _HARMLESS.fullmatch(name):
            return f"the setting {escape_filename(name[:40])!r} of {escape_filename(str(file))}"
    return None
