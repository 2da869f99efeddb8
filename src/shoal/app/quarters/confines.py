"""Sandbox policies for the shell commands of a session, from the settings and the workspace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.app.quarters.precious import CREDENTIALS, START_UP
from shoal.app.settings.settings import Settings
from shoal.backends.sandbox.choosing import WAY_OUT, ChosenSandbox, Wish, found_among, kinds_here
from shoal.core.errors import SettingsError, WorktreeError
from shoal.core.sandbox import Confines
from shoal.tools.environment import is_provider_secret
from shoal.wire.settings import SandboxSettings
from shoal.workspaces.local import LocalWorkspace
from shoal.workspaces.repository import kept_of_git, writable_of_git
from shoal.workspaces.worktree import Worktree, WorktreeWorkspace

if TYPE_CHECKING:
    from shoal.app.quarters.machine import State

_PROJECT_AUTHORITY = (".claude", ".mcp.json")
WEAKER = (
    "Or accept that rules alone judge them, and that a command which is allowed can leave the worktree: "
    '{"shoal": {"worktree_guard": "weak"}} in your settings.json.'
)
_DOORS = (".X11-unix", ".ICE-unix")


def sandbox(
    settings: Settings,
    workspace: LocalWorkspace,
    record: Path,
    note: Callable[[str], None],
    withheld: Callable[[], Sequence[Path]] = tuple,
) -> ChosenSandbox:
    """Create the sandbox of a session.

    Commands can read only the results in `session_directory`. `list_unreadable` returns the paths that
    rules exclude from reading.
    """
    wanted = settings.own.sandbox
    environ = settings.tool_environment
    return ChosenSandbox(
        Wish(
            enabled=bool(wanted.enabled),
            insists=_insists(wanted),
            auto_allow=wanted.auto_allow,
        ),
        confines=lambda: confines(settings, environ, workspace, record, withheld()),
        kinds=kinds_here(settings.environ.get("PATH", os.defpath)),
        note=note,
    )


def confines(
    settings: Settings,
    environ: dict[str, str],
    workspace: LocalWorkspace,
    record: Path,
    withheld: Sequence[Path] = (),
) -> Confines:
    wanted = settings.own.sandbox
    person = Path(environ.get("HOME") or "/")
    work = [workspace.root, *workspace.granted]
    named = [_path(text, person, workspace.root) for text in wanted.writable]
    if wanted.auto_allow:
        # No questions are asked, so a command must not be able to create the files that would allow it more.
        (workspace.root / ".claude").mkdir(exist_ok=True)
    return Confines(
        writable=(*work, *_temporary(environ), *writable_of_git(workspace.root), *named),
        kept=(
            settings.home,
            *(place for directory in work for place in kept_of_git(directory)),
            *(directory / name for directory in work for name in _PROJECT_AUTHORITY),
            *(person / name for name in START_UP),
        ),
        hidden=(
            *_lifted((*_secrets(settings, person), record), named),
            *(_path(text, person, workspace.root) for text in wanted.hidden),
        ),
        withheld=tuple(_hideable(withheld, [*work, *_temporary(environ), *named], person)),
        doors=_lifted([*_doors(environ)], named),
        shown=(record / "results",),
        network=wanted.network,
    )


async def worktree_sandbox(
    settings: Settings,
    worktree: Worktree,
    workspace: WorktreeWorkspace,
    record: Path,
    note: Callable[[str], None],
    withheld: Callable[[], Sequence[Path]] = tuple,
) -> ChosenSandbox:
    """Create the sandbox that confines an agent's commands to its worktree; otherwise as `create_sandbox`.

    Raises `WorktreeError` if no sandbox can, unless the settings allow the weak guard: then rules judge
    commands, as they do without a sandbox, and only the file tools are confined to the worktree.
    """
    wanted, weak = settings.own.sandbox, settings.own.worktree_guard == "weak"
    chosen = ChosenSandbox(
        Wish(
            enabled=bool(wanted.enabled), insists=not weak or _insists(wanted), auto_allow=wanted.auto_allow
        ),
        confines=lambda: worktree_confines(settings, worktree, workspace, record, withheld()),
        kinds=kinds_here(settings.environ.get("PATH", os.defpath)),
        note=note,
    )
    await chosen.ready()
    if not chosen.holds and not weak:
        raise WorktreeError(
            f"The commands of an agent in a worktree need a sandbox that holds them there: {chosen.trouble}. "
            f"{WEAKER}"
        )
    return chosen


def worktree_confines(
    settings: Settings,
    worktree: Worktree,
    workspace: WorktreeWorkspace,
    record: Path,
    withheld: Sequence[Path] = (),
) -> Confines:
    """Allow writes to the worktree and for its commits; seal the lead's checkout and repository."""
    usual = confines(settings, settings.tool_environment, workspace, record, withheld)
    sealed = tuple(Path(os.path.realpath(path)) for path in worktree.sealed)
    beside = [path for path in usual.writable if not _inside(Path(os.path.realpath(path)), sealed)]
    return replace(
        usual,
        writable=(*beside, *worktree.writable),
        kept=(*usual.kept, *worktree.kept, *(worktree.path / name for name in _PROJECT_AUTHORITY)),
        sealed=sealed,
    )


def examined(settings: Settings) -> tuple[State, str, str]:
    """Return state, description and advice for `shoal doctor`."""
    wanted = settings.own.sandbox
    if not wanted.enabled:
        return "none", f"turned off ({settings.origin('shoal.sandbox.enabled')})", ""
    found = found_among(kinds_here(settings.environ.get("PATH", os.defpath)))
    why = "; ".join(found.troubles)
    insists = _insists(wanted)
    if found.kind is None:
        return "bad" if insists else "warn", f"none holds: {why}", "Install bubblewrap." if insists else ""
    network = "network" if wanted.network else "no network"
    if not wanted.network and found.kind.lack(Confines(writable=(), network=False)):
        return "bad", f"{found.kind.name} cannot cut the network, which the settings ask for; {why}", WAY_OUT
    value = f"{found.kind.name}, {network}{', commands are not asked about' if wanted.auto_allow else ''}"
    return ("warn", f"{value}; {why}", found.kind.limits) if why else ("ok", value, "")


def checked(settings: Settings, cwd: Path) -> list[str]:
    """Return notes on the sandbox settings. Raises `SettingsError` if they contradict each other."""
    wanted, person = settings.own.sandbox, Path(settings.tool_environment.get("HOME") or "/")
    if not wanted.enabled:
        for name, asked in (("network: false", not wanted.network), ("autoAllow: true", wanted.auto_allow)):
            if asked:
                raise SettingsError(
                    f"shoal.sandbox: {name} needs the sandbox that enabled: false turns off. Leave one out."
                )
    hidden = {_path(text, person, cwd): text for text in wanted.hidden}
    notes = []
    for text in wanted.writable:
        path = _path(text, person, cwd)
        if path in hidden:
            raise SettingsError(f"shoal.sandbox: {text} is both writable and hidden. Leave one out.")
        if not path.exists():
            notes.append(f"shoal.sandbox.writable: {path} does not exist. Commands cannot write there.")
    for path, text in hidden.items():
        if cwd.is_relative_to(path):
            raise SettingsError(
                f"shoal.sandbox.hidden: {text} holds the project {cwd}, which commands work in. "
                "Hide what is inside it, or work elsewhere."
            )
        if not path.exists():
            notes.append(f"shoal.sandbox.hidden: {path} does not exist. It is hidden once it does.")
    return notes


def _inside(path: Path, places: Sequence[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _insists(wanted: SandboxSettings) -> bool:
    """Return True if the user requested the sandbox explicitly, so that its absence is an error."""
    return wanted.enabled is True or not wanted.network or bool(wanted.hidden)


def _path(text: str, person: Path, project: Path) -> Path:
    if text == "~" or text.startswith("~/"):
        return Path(os.path.realpath(person / text[2:]))
    return Path(os.path.realpath(project / text))


def _temporary(environ: dict[str, str]) -> Iterator[Path]:
    yield Path(tempfile.gettempdir())
    if environ.get("TMPDIR"):
        yield Path(environ["TMPDIR"])


def _secrets(settings: Settings, person: Path) -> Iterator[Path]:
    for name in CREDENTIALS:
        yield person / name
    # Keys between processes, data of other sessions, and the sockets that control runs.
    yield settings.home / "shoal"
    yield settings.home / ".credentials.json"
    for document in (*settings.documents, *(each.document for each in settings.left_out)):
        env = document.raw.get("env")
        if document.path is not None and isinstance(env, dict) and any(map(is_provider_secret, env)):
            yield document.path


def _doors(environ: dict[str, str]) -> Iterator[Path]:
    temporary = Path(tempfile.gettempdir())
    for name in (*_DOORS, f"tmux-{os.getuid()}"):
        yield temporary / name
    if environ.get("TMUX_TMPDIR"):
        yield Path(environ["TMUX_TMPDIR"]) / f"tmux-{os.getuid()}"
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"])
    if environ.get("SSH_AUTH_SOCK"):
        yield Path(environ["SSH_AUTH_SOCK"])
    yield from (Path("/var/run/docker.sock"), Path("/var/lib/docker"))


def _hideable(paths: Sequence[Path], work: Sequence[Path], person: Path) -> Iterator[Path]:
    """Yield paths that can be hidden without breaking commands: no parents of the work, no system paths."""
    for path in paths:
        inside = any(path.is_relative_to(place) for place in (*work, person))
        if inside and not any(place.is_relative_to(path) for place in (*work, person)):
            yield path


def _lifted(paths: Sequence[Path], named: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths without those that the user made writable by name."""
    return tuple(path for path in paths if Path(os.path.realpath(path)) not in named)
