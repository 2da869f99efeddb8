"""Sandbox policies for the shell commands of a session, from the settings and the workspace."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.hooks.agent_hooks import VARIABLES_DIRECTORY
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.foreign_settings import list_sandbox_read_lists
from shoal.app.settings.settings import Settings
from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.sandbox.sandbox_selection import (
    DISABLE_HINT,
    SandboxPreferences,
    SandboxSelection,
    detect_sandbox_driver,
    list_sandbox_drivers,
)
from shoal.core.errors import SettingsError, WorktreeError
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.text.filenames import escape_filename
from shoal.core.user_environment import get_user_environment
from shoal.tools.command_environment import is_provider_secret_variable
from shoal.wire.settings_codec import (
    SandboxSettings,
    convert_to_settings_schema,
    has_settings_key,
    merge_settings_documents,
)
from shoal.workspaces.confined_checkout import ConfinedCheckout
from shoal.workspaces.git_paths import (
    iter_git_control_paths,
    iter_paths_written_by_git_commit,
)
from shoal.workspaces.hidden_file_marks import (
    HiddenFileMarks,
    plan_hidden_files,
    remove_leftover_marks,
)
from shoal.workspaces.local_workspace import LocalWorkspace
from shoal.workspaces.worktree import Worktree

if TYPE_CHECKING:
    from shoal.app.isolation.machine_checks import DiagnosticState

_PROJECT_CONFIG_FILES = (".claude", ".mcp.json", ".envrc")
WEAK_GUARD_ADVICE = (
    "Or rely on permission rules alone and accept that an allowed command can leave the worktree: "
    'put {"shoal": {"worktree_guard": "weak"}} in your settings.json.'
)
_CHECKOUT_ADVICE = (
    "Install bubblewrap there. Or rely on permission rules alone and accept that an allowed command can "
    'leave the checkout: pass {"shoal": {"worktree_guard": "weak"}} with --settings, or put it in '
    "settings.json in Shoal's home on that machine."
)
_SOCKET_DIRECTORIES = (".X11-unix", ".ICE-unix")
# fmt: off
CREDENTIAL_PATHS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials",
    ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".config/gcloud",
    ".config/op", ".config/doctl", ".password-store", ".local/share/keyrings", ".npmrc", ".yarnrc.yml",
    ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".vault-token",
    ".terraform.d", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".anthropic", ".config/anthropic",
    ".openai", ".config/openai", ".codex", ".gemini", ".cache/huggingface/token", ".huggingface",
    ".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history",
    ".python_history",
)
"""The user's credentials and private data. These paths are hidden."""

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".inputrc", ".config/fish", ".gitconfig", ".config/git", ".config/autostart",
    ".config/systemd", ".local/bin", ".vimrc", ".config/nvim",
)
"""Files that run when the user opens a shell or an editor, or uses git. These paths are read-only."""

_ALLOW_ADVICE = {
    "shoal.sandbox.hidden": "",
    "sandbox.filesystem.denyRead": "add the project's path to allowRead, ",
}

PROJECT_CONTROL_FILES = (".git", ".claude", ".mcp.json", ".envrc", ".git/config.worktree")
"""Files at the top of a project that make programs outside the sandbox run something. Commands cannot create
them."""


# fmt: on


def create_sandbox_selection(
    settings: Settings, workspace: LocalWorkspace, session_directory: Path, note: Callable[[str], None]
) -> SandboxSelection:
    """Create the selection of a session's sandbox.

    Commands can read only the results and the variables in `session_directory`.
    """
    preferences = settings.own.sandbox
    environ = settings.tool_environment
    return SandboxSelection(
        SandboxPreferences(
            enabled=_is_session_sandboxed(preferences),
            insists=_is_sandbox_required(preferences),
            auto_allow=preferences.auto_allow,
        ),
        build_policy=lambda unreadable: build_sandbox_policy(
            settings, environ, workspace, session_directory, unreadable
        ),
        drivers=list_sandbox_drivers(settings.environ.get("PATH", os.defpath)),
        note=note,
        marks=HiddenFileMarks(_get_mark_records(settings.home)),
    )


def build_sandbox_policy(
    settings: Settings,
    environ: Mapping[str, str],
    workspace: LocalWorkspace,
    session_directory: Path,
    unreadable: Sequence[Path] = (),
) -> SandboxPolicy:
    preferences = settings.own.sandbox
    user_home = Path(environ.get("HOME") or "/")
    work = [workspace.root, *workspace.granted_directories]
    if (entered := _find_entered_worktree(workspace)) is not None:
        work.append(entered)
    named_writable = [
        _resolve_sandbox_setting_path(text, user_home, workspace.root) for text in preferences.writable
    ]
    read_only = [*_iter_matching_paths(preferences.read_only, user_home, workspace.root)]
    temporary = [] if preferences.private_temp else [*_iter_temporary_directories(environ)]
    denied = tuple(_filter_hideable_paths(unreadable, [*work, *temporary, *named_writable], user_home))
    regions = _list_read_regions(settings, user_home, workspace.root)
    hidden = tuple(path for each in regions for path in each.denied if not _is_readable(path, regions))
    secret = (*_iter_secret_paths(settings, user_home), session_directory)
    shown = tuple(
        path
        for path in _iter_shown_paths(regions)
        if not _is_inside_any_directory(path, [Path(os.path.realpath(each)) for each in (*secret, *denied)])
    )
    tracked = plan_hidden_files(
        (*denied, *hidden), session_directory / "git-info", _get_mark_records(settings.home), work
    )
    return SandboxPolicy(
        writable=(
            *work,
            *temporary,
            *iter_paths_written_by_git_commit(workspace.root),
            *named_writable,
        ),
        read_only=(
            settings.home,
            *(path for directory in work for path in iter_git_control_paths(directory)),
            *(directory / name for directory in work for name in _PROJECT_CONFIG_FILES),
            *(user_home / name for name in STARTUP_FILES),
        ),
        hidden=(
            *_exclude_user_writable_paths(secret, named_writable),
            *hidden,
        ),
        hidden_if_possible=denied,
        sealed_repositories=tracked.unmarkable,
        marked_repositories=tracked.markable,
        replaced_directories=tracked.information,
        git_settings=tracked.settings,
        hidden_sockets=_exclude_user_writable_paths([*_iter_socket_paths(environ)], named_writable),
        readable=(session_directory / "results", session_directory / VARIABLES_DIRECTORY, *shown),
        network=preferences.network,
        has_private_temp=preferences.private_temp,
        always_read_only=tuple(read_only),
        uncreatable=(
            *_exclude_user_writable_paths(
                [directory / name for directory in work for name in PROJECT_CONTROL_FILES], named_writable
            ),
            *read_only,
        ),
        watched=tuple(work),
    )


def _get_mark_records(home: Path) -> Path:
    return home / "shoal" / "git-marks"


def remove_leftover_git_marks(home: Path) -> tuple[str, ...]:
    """Remove the marks that killed runs left in git's index; return a note about files that git changed."""
    records = _get_mark_records(home)
    changed = remove_leftover_marks(records) if records.is_dir() else ()
    paths = ", ".join(map(escape_filename, changed))
    return (format_backend_notice("hidden_files_changed", paths=paths),) if changed else ()


def _find_entered_worktree(workspace: LocalWorkspace) -> Path | None:
    """Return the worktree below `.claude/worktrees` in which the lead works; commands may write in it."""
    worktrees = workspace.root / ".claude" / "worktrees"
    cwd = workspace.cwd
    if not cwd.is_relative_to(worktrees) or cwd == worktrees:
        return None
    path = worktrees / cwd.relative_to(worktrees).parts[0]
    return None if path.is_symlink() else path


async def create_worktree_sandbox_selection(
    settings: Settings,
    worktree: Worktree,
    workspace: LocalWorkspace,
    session_directory: Path,
    note: Callable[[str], None],
) -> SandboxSelection:
    """Create the selection of a sandbox that confines an agent's commands to its worktree.

    Raises `WorktreeError` if no sandbox can, unless the settings allow the weak guard: then rules judge
    commands, as they do without a sandbox, and only the file tools are confined to the worktree.
    """
    preferences, is_weak = settings.own.sandbox, settings.own.worktree_guard == "weak"
    selection = SandboxSelection(
        SandboxPreferences(
            enabled=bool(preferences.enabled),
            insists=not is_weak or _is_sandbox_required(preferences),
            auto_allow=preferences.auto_allow,
        ),
        build_policy=lambda unreadable: build_worktree_sandbox_policy(
            settings, worktree, workspace, session_directory, unreadable
        ),
        drivers=list_sandbox_drivers(settings.environ.get("PATH", os.defpath)),
        note=note,
        marks=HiddenFileMarks(_get_mark_records(settings.home)),
    )
    await selection.detect_availability()
    if selection.get_driver() is None and not is_weak:
        raise WorktreeError(_explain_missing_sandbox(worktree, selection.problem))
    return selection


def _explain_missing_sandbox(worktree: Worktree, problem: str) -> str:
    if isinstance(worktree, ConfinedCheckout):
        return format_session_notice(
            "checkout_needs_sandbox", machine=socket.gethostname(), problem=problem, advice=_CHECKOUT_ADVICE
        )
    return format_session_notice("worktree_needs_sandbox", problem=problem, advice=WEAK_GUARD_ADVICE)


def build_worktree_sandbox_policy(
    settings: Settings,
    worktree: Worktree,
    workspace: LocalWorkspace,
    session_directory: Path,
    unreadable: Sequence[Path] = (),
) -> SandboxPolicy:
    """Allow writes to the worktree and for its commits; seal the lead's checkout and repository."""
    policy = build_sandbox_policy(
        settings, settings.tool_environment, workspace, session_directory, unreadable
    )
    sealed = tuple(Path(os.path.realpath(path)) for path in worktree.sealed_paths)
    own = (Path(os.path.realpath(worktree.path)),)

    def is_sealed(path: Path) -> bool:
        real = Path(os.path.realpath(path))
        return _is_inside_any_directory(real, sealed) and not _is_inside_any_directory(real, own)

    writable = [path for path in policy.writable if not is_sealed(path)]
    return replace(
        policy,
        writable=(*writable, *worktree.writable_paths),
        read_only=(
            *policy.read_only,
            *worktree.read_only_paths,
            *(worktree.path / name for name in _PROJECT_CONFIG_FILES),
        ),
        always_read_only=(*policy.always_read_only, *sealed),
        uncreatable=tuple(
            path
            for path in (*policy.uncreatable, *(worktree.path / name for name in PROJECT_CONTROL_FILES))
            if not is_sealed(path)
        ),
        readable=(*policy.readable, *worktree.shared_objects),
    )


def diagnose_sandbox(settings: Settings) -> tuple[DiagnosticState, str, str]:
    """Return state, description and advice for `shoal doctor`."""
    preferences = settings.own.sandbox
    if not _is_session_sandboxed(preferences):
        own_key, key = "shoal.sandbox.enabled", "sandbox.enabled"
        has_own_key = any(has_settings_key(each, own_key.split(".")) for each in settings.documents)
        origin = settings.find_setting_origin(own_key if has_own_key else key)
        remark = "" if preferences.enabled is False else ", except for agents in worktrees"
        return "none", f"turned off{remark} ({origin})", ""
    detected = detect_sandbox_driver(list_sandbox_drivers(settings.environ.get("PATH", os.defpath)))
    problems = "; ".join(detected.problems)
    is_required = _is_sandbox_required(preferences)
    if detected.driver is None:
        return (
            "bad" if is_required else "warn",
            f"none is available: {problems}",
            "Install bubblewrap." if is_required else "",
        )
    network = "network" if preferences.network else "no network"
    if not preferences.network and detected.driver.find_unsupported_policy_part(
        SandboxPolicy(writable=(), network=False)
    ):
        return (
            "bad",
            f"{detected.driver.name} cannot block the network, which the settings require; {problems}",
            DISABLE_HINT,
        )
    unasked = "; commands run without asking" if preferences.auto_allow else ""
    value = f"{detected.driver.name}, {network}{unasked}"
    return ("warn", f"{value}; {problems}", detected.driver.limits) if problems else ("ok", value, "")


def check_sandbox_settings(settings: Settings, cwd: Path) -> list[str]:
    """Return notes on the sandbox settings. Raises `SettingsError` if they contradict each other."""
    preferences, user_home = settings.own.sandbox, Path(settings.tool_environment.get("HOME") or "/")
    if not _is_session_sandboxed(preferences):
        state = str(preferences.enabled).lower()
        for name, is_set in (
            ("network: false", not preferences.network),
            ("autoAllow: true", preferences.auto_allow),
        ):
            if is_set:
                raise SettingsError(
                    f"shoal.sandbox: {name} needs the sandbox, but enabled: {state} "
                    "turns it off. Remove one of them."
                )
    hidden = {_resolve_sandbox_setting_path(text, user_home, cwd): text for text in preferences.hidden}
    own_hidden = _list_own_hidden_paths(settings) if hidden else ()
    notes = []
    for text in preferences.writable:
        path = _resolve_sandbox_setting_path(text, user_home, cwd)
        if path in hidden:
            raise SettingsError(
                f"shoal.sandbox: {text} is in both `writable` and `hidden`. Remove it from one."
            )
        if not path.exists():
            notes.append(f"shoal.sandbox.writable: {path} does not exist. Commands cannot write there.")
    regions = _list_read_regions(settings, user_home, cwd)
    for path, text in hidden.items():
        if cwd.is_relative_to(path) and not _is_readable(Path(os.path.realpath(cwd)), regions):
            key = "shoal.sandbox.hidden" if text in own_hidden else "sandbox.filesystem.denyRead"
            raise SettingsError(
                f"{key}: {text} contains the project {cwd}, where commands run. Hide a "
                f"directory inside it, {_ALLOW_ADVICE[key]}or work elsewhere."
            )
        if text in own_hidden and not path.exists() and not is_glob_pattern(text):
            notes.append(f"shoal.sandbox.hidden: {path} does not exist. Shoal will hide it once it exists.")
    return notes


class _ReadRegion(Struct, frozen=True):
    """Hidden paths, and those inside them that stay readable."""

    denied: tuple[Path, ...]
    allowed: tuple[Path, ...]


def _list_read_regions(settings: Settings, user_home: Path, project: Path) -> list[_ReadRegion]:
    return [
        _ReadRegion(
            tuple(_iter_matching_paths(each.denied, user_home, project)),
            tuple(_iter_matching_paths(each.allowed, user_home, project)),
        )
        for each in list_sandbox_read_lists(settings.documents, settings.own.sandbox.hidden)
    ]


def _is_readable(path: Path, regions: Sequence[_ReadRegion]) -> bool:
    """Return True if each region that hides a path shows it again. The innermost path applies."""
    for region in regions:
        hiding = [each for each in region.denied if path.is_relative_to(each)]
        showing = [each for each in region.allowed if path.is_relative_to(each)]
        if hiding and max(map(_get_depth, hiding)) > max(map(_get_depth, showing), default=-1):
            return False
    return True


def _iter_shown_paths(regions: Sequence[_ReadRegion]) -> Iterator[Path]:
    """Yield the paths that are inside a hidden one and readable nevertheless."""
    for region in regions:
        for path in region.allowed:
            if _is_inside_any_directory(path, region.denied) and _is_readable(path, regions):
                yield path


def _get_depth(path: Path) -> int:
    return len(path.parts)


def _list_own_hidden_paths(settings: Settings) -> tuple[str, ...]:
    """Return the paths under `shoal.sandbox`, where a path that does not exist is probably a mistake."""
    return convert_to_settings_schema(merge_settings_documents(settings.documents)).shoal.sandbox.hidden


def _is_inside_any_directory(path: Path, directories: Sequence[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)


def _is_session_sandboxed(settings: SandboxSettings) -> bool:
    """Return True if commands outside worktrees run in a sandbox too."""
    return settings.enabled not in (False, "worktrees")


def _is_sandbox_required(settings: SandboxSettings) -> bool:
    """Return True if the user requested the sandbox explicitly, so that its absence is an error."""
    return settings.enabled is True or not settings.network or bool(settings.hidden or settings.read_only)


def _resolve_sandbox_setting_path(text: str, user_home: Path, project: Path) -> Path:
    if text == "~" or text.startswith("~/"):
        return Path(os.path.realpath(user_home / text[2:]))
    return Path(os.path.realpath(project / text))


def is_glob_pattern(text: str) -> bool:
    return any(character in text for character in "*?[")


def _iter_matching_paths(texts: Sequence[str], user_home: Path, project: Path) -> Iterator[Path]:
    """Yield the paths of settings; for a pattern those that match it now, for each command again."""
    for text in texts:
        path = _resolve_sandbox_setting_path(text, user_home, project)
        if not is_glob_pattern(text) or path.exists():
            yield path
            continue
        from glob import iglob

        names = iglob(str(path), recursive=True, include_hidden=True)  # noqa: PTH207 - an absolute pattern
        yield from map(Path, names)


def _iter_temporary_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(get_user_environment(environ).temporary_directory)
    if environ.get("TMPDIR"):
        yield Path(environ["TMPDIR"])


def _iter_secret_paths(settings: Settings, user_home: Path) -> Iterator[Path]:
    for name in CREDENTIAL_PATHS:
        yield user_home / name
    # Keys between processes, data of other sessions, and the sockets that control runs.
    yield settings.home / "shoal"
    yield settings.home / ".credentials.json"
    for document in (
        *settings.documents,
        *(each.document for each in settings.findings.untrusted_escalations),
    ):
        env = document.raw.get("env")
        if document.path is not None and isinstance(env, dict) and any(map(is_provider_secret_variable, env)):
            yield document.path


def _iter_socket_paths(environ: Mapping[str, str]) -> Iterator[Path]:
    temporary = Path(get_user_environment(environ).temporary_directory)
    for name in (*_SOCKET_DIRECTORIES, f"tmux-{os.getuid()}"):
        yield temporary / name
    if environ.get("TMUX_TMPDIR"):
        yield Path(environ["TMUX_TMPDIR"]) / f"tmux-{os.getuid()}"
    if environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"])
    if environ.get("SSH_AUTH_SOCK"):
        yield Path(environ["SSH_AUTH_SOCK"])
    yield from (Path("/var/run/docker.sock"), Path("/var/lib/docker"))


def _filter_hideable_paths(paths: Sequence[Path], work: Sequence[Path], user_home: Path) -> Iterator[Path]:
    """Yield paths that can be hidden without breaking commands: no parents of the work, no system paths."""
    for path in paths:
        is_inside = any(path.is_relative_to(directory) for directory in (*work, user_home))
        if is_inside and not any(directory.is_relative_to(path) for directory in (*work, user_home)):
            yield path


def _exclude_user_writable_paths(paths: Sequence[Path], named: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths without those that the user made writable by name."""
    return tuple(path for path in paths if Path(os.path.realpath(path)) not in named)
