"""Remotes of the lead's repository, from which other machines fetch the commits that are already there."""

from __future__ import annotations

import math
import re
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError
from shoal.core.ports import ProcessLauncher
from shoal.workspaces.checkout import GitCheckout
from shoal.workspaces.git_program_settings import CHECK_FETCHED_OBJECTS
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.workspace_texts import format_workspace_notice

_MAX_REMOTES = 5
_MAX_REFS = 100
"""Remote-tracking refs of a remote that are compared, the newest first."""
_MAX_URL_LENGTH = 2000
FETCHED_REF = "refs/shoal/fetched"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_USER = r"(?:(?P<user>[A-Za-z0-9_][\w.-]*)(?::[^/@]*)?@)?"
_HOST = r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]+)?"
_WEB_URL = re.compile(rf"(?P<scheme>https|git)://(?:[^/@]*@)?{_HOST}(?P<path>/[^@?#]*)")
_SSH_URL = re.compile(rf"ssh://{_USER}{_HOST}(?P<path>/[^@?#]*)")
# Not "HELPER::ADDRESS", which runs a program, and not another kind of URL.
_SSH_PATH = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!:|//)[^@:]+")
_FILE_PATH = re.compile(r"(?:file://)?/[^/].*")


class RemoteCommit(Struct, frozen=True, kw_only=True):
    """Commit of the lead's repository that a remote has, as far as the lead knows."""

    url: str
    commit: str


async def find_remote_commit(git: GitRunner, checkout: GitCheckout, commit: str) -> RemoteCommit | None:
    """Return the latest pushed commit in the history of a commit; None if no usable remote has any of it."""
    at = checkout.git_directories
    names = [name for name in (await git("remote", at=at)).text.split("\n") if re.match(r"\w", name)]
    found: RemoteCommit | None = None
    fewest_missing = -1
    for name in sorted(names, key=lambda name: name != "origin")[:_MAX_REMOTES]:
        url = remove_url_credentials((await git.try_run("remote", "get-url", name, at=at)).text)
        base = await _find_latest_pushed_commit(git, checkout, name, commit) if url else ""
        if not base:
            continue
        missing = int((await git("rev-list", "--count", commit, f"^{base}", at=at)).text)
        if found is None or missing < fewest_missing:
            found, fewest_missing = RemoteCommit(url=url, commit=base), missing
        if not missing:
            break
    return found


async def _find_latest_pushed_commit(git: GitRunner, checkout: GitCheckout, remote: str, commit: str) -> str:
    arguments = (f"--count={_MAX_REFS}", "--sort=-committerdate", "--format=%(objectname)")
    listing = await git.try_run(
        "for-each-ref", *arguments, f"refs/remotes/{remote}/", at=checkout.git_directories
    )
    if not listing.text:
        return ""
    pushed = dict.fromkeys(listing.text.split("\n"))
    # The best common ancestor of the commit and of all of them together.
    base = await git.try_run("merge-base", commit, *pushed, at=checkout.git_directories)
    return base.text if base.status == 0 else ""


def remove_url_credentials(url: str) -> str:
    """Return the URL without passwords and tokens; empty if git may not fetch from it.

    A user name stays only for ssh, which has no other way to select the account.
    """
    if len(url) > _MAX_URL_LENGTH or not url.isprintable():
        return ""
    if _SSH_PATH.fullmatch(url) or _FILE_PATH.fullmatch(url):
        return url
    if found := _WEB_URL.fullmatch(url):
        return f"{found['scheme']}://{found['host']}{found['port'] or ''}{found['path']}"
    if found := _SSH_URL.fullmatch(url):
        user = f"{found['user']}@" if found["user"] else ""
        return f"ssh://{user}{found['host']}{found['port'] or ''}{found['path']}"
    return ""


async def fetch_remote_commit(
    git: GitRunner, remote: RemoteCommit, repository: Path, timeout: float, processes: ProcessLauncher
) -> None:
    """Fetch a commit from its remote into an empty repository. Raises `WorktreeError`."""
    if remove_url_credentials(remote.url) != remote.url or not _COMMIT.fullmatch(remote.commit):
        raise WorktreeError(format_workspace_notice("invalid_remote"))
    # The user's own command; the repository is new and has no configuration.
    ssh = (await git.try_run("config", "--get", "core.sshCommand", at=repository)).text or "ssh"
    if Path(ssh.partition(" ")[0]).name == "ssh":
        ssh += f" -o BatchMode=yes -o ControlMaster=no -o ConnectTimeout={math.ceil(timeout)}"
    await git.create_server_runner(timeout, processes)(
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc"),
        *("--", remote.url, f"+{remote.commit}:{FETCHED_REF}"),
        at=repository,
        settings=(
            *CHECK_FETCHED_OBJECTS,
            *("credential.interactive=false", f"core.sshCommand={ssh}"),
            *("http.lowSpeedLimit=1", f"http.lowSpeedTime={math.ceil(timeout)}"),
        ),
    )
    # Git takes a name for the name of a branch if it is not as long as the ids of the repository.
    if (await git("rev-parse", "--verify", FETCHED_REF, at=repository)).text != remote.commit:
        raise WorktreeError(format_workspace_notice("invalid_remote"))
