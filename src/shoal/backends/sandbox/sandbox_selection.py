"""Selection of the sandbox for the commands of a session: the first that works here, or none and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.sandbox.bubblewrap import BubblewrapSandboxDriver
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from shoal.backends.sandbox.placeholders import SandboxPlaceholders
from shoal.backends.sandbox.planted_files import PlantedFileSearch
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.backends.sandbox.seatbelt import SeatbeltSandboxDriver
from shoal.core.errors import ProcessError
from shoal.core.permissions.sandbox import RepositoryMarks, SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec
from shoal.core.text.filenames import escape_filename

DISABLE_HINT = (
    "Or run without a sandbox, so that commands can do everything that you can: put "
    '{"shoal": {"sandbox": {"enabled": false}}} in your settings.json.'
)
_MAX_SHOWN = 5


class SandboxPreferences(Struct, frozen=True, kw_only=True):
    """Sandbox settings of the user."""

    enabled: bool = True
    insists: bool = False
    """Refuse a command that cannot be confined as requested, instead of running it without a sandbox."""
    auto_allow: bool = False


class DetectedSandboxDriver(Struct, frozen=True, kw_only=True):
    """Driver that works here, and the problems of better ones."""

    driver: SandboxDriver | None
    problems: tuple[str, ...] = ()


class SandboxSelection:
    """Selects the driver. It exists before the permissions, which ask it whether a question is needed.

    `build_policy` gets the unreadable paths. It is called for each command, because directories are granted
    while a session runs. No driver is rejected because of unreadable paths: they are hidden if possible.
    """

    def __init__(
        self,
        preferences: SandboxPreferences,
        *,
        build_policy: Callable[[Sequence[Path]], SandboxPolicy],
        drivers: Sequence[SandboxDriver],
        note: Callable[[str], None],
        marks: RepositoryMarks | None = None,
    ) -> None:
        self.preferences = preferences
        self.build_policy = build_policy
        self.marks = marks
        self.note = note
        self._drivers = drivers
        self._detected: DetectedSandboxDriver | None = None
        self._selected: tuple[SandboxDriver | None] | None = None

    @property
    def problem(self) -> str:
        """Reason why commands are not confined; empty if they are."""
        return self.select_driver(())[2]

    @property
    def can_skip_permission_question(self) -> bool:
        if not self.preferences.auto_allow:
            return False
        kind = self.get_driver()
        # Through a reachable socket a command could get its own questions answered.
        return kind is not None and kind.blocks_sockets

    async def detect_availability(self) -> None:
        if self.preferences.enabled and self._detected is None:
            import asyncio

            await asyncio.to_thread(self.detect_driver)

    def get_driver(self) -> SandboxDriver | None:
        """Return the driver; cached, because it is needed for every call."""
        if self._selected is None:
            self._selected = (self.select_driver(())[0],)
        return self._selected[0]

    def select_driver(self, unreadable: Sequence[Path]) -> tuple[SandboxDriver | None, SandboxPolicy, str]:
        """Return the driver and the policy for a command, or None and the reason."""
        if not self.preferences.enabled:
            return None, SandboxPolicy(writable=()), "the settings turn it off"
        found, policy = self.detect_driver(), self.build_policy(unreadable)
        if found.driver is None:
            return None, policy, "; ".join(found.problems) or "none is available for this system"
        unsupported = found.driver.find_unsupported_policy_part(policy)
        if unsupported is not None:
            return None, policy, "; ".join((unsupported, *found.problems))
        return found.driver, policy, ""

    def detect_driver(self) -> DetectedSandboxDriver:
        if self._detected is None:
            self._detected = detect_sandbox_driver(self._drivers)
        return self._detected


class DriverSelectingSandbox:
    """`list_unreadable` returns the paths that permission rules exclude from reading."""

    def __init__(
        self, selection: SandboxSelection, list_unreadable: Callable[[], Sequence[Path]] = tuple
    ) -> None:
        self._selection = selection
        self._list_unreadable = list_unreadable
        self._reported: set[str] = set()
        self._placeholders = SandboxPlaceholders()
        self._search = PlantedFileSearch()
        self._watched: tuple[Path, ...] = ()
        self._repository_notices: list[str] = []
        self._running: list[bool] = []
        """One entry for each running command: True if it has placeholders."""

    @property
    def is_active(self) -> bool:
        return self._selection.get_driver() is not None

    @property
    def can_skip_permission_question(self) -> bool:
        return self._selection.can_skip_permission_question

    @property
    def ends_all_processes(self) -> bool:
        kind = self._selection.get_driver()
        return kind is not None and kind.ends_all_processes

    async def detect_availability(self) -> None:
        await self._selection.detect_availability()

    async def wrap_launch(self, launch: ProcessLaunchSpec, scratch: Path | None = None) -> ProcessLaunchSpec:
        preferences = self._selection.preferences
        if not preferences.enabled:
            return launch
        kind, policy, reason = self._selection.select_driver(self._list_unreadable())
        if kind is not None:
            found = self._selection.detect_driver()
            if kind.limits and found.problems:
                self._note_once(f"Commands run in {kind.name} because {found.problems[0]}. {kind.limits}")
            policy = await self._mark_hidden_files(policy if kind.hides_denied_files else _unseal(policy))
            if kind.needs_placeholders:
                try:
                    await self._placeholders.acquire(policy.uncreatable)
                except BaseException:
                    await self._unmark_hidden_files()
                    raise
            self._running.append(kind.needs_placeholders)
            self._note_sealed_repositories(policy, launch)
            launch = _add_git_settings(launch, policy)
            if scratch is not None:
                policy = replace(policy, writable=(*policy.writable, scratch))
                if policy.has_private_temp:
                    launch = replace(launch, env={**launch.env, "TMPDIR": str(scratch)})
            return kind.wrap_launch(launch, policy)
        if preferences.insists:
            raise ProcessError(format_backend_notice("sandbox_required", reason=reason, hint=DISABLE_HINT))
        self._note_once(f"Commands run without a sandbox: {reason}.")
        return launch

    async def begin_command(self) -> None:
        if not self.is_active:
            return
        import asyncio

        self._watched = self._selection.build_policy(()).watched
        # While another command runs, what appears is probably its doing.
        if not self._running:
            await asyncio.to_thread(self._search.remember_existing, self._watched)

    async def finish_command(self) -> tuple[str, ...]:
        if not self._running:
            return ()
        if self._running.pop():
            self._placeholders.release()
        changed = await self._unmark_hidden_files()
        import asyncio

        found = await asyncio.to_thread(self._search.find_new, self._watched)
        if not self._search.is_complete:
            self._note_once(
                "The project has too many directories, so Shoal cannot check whether commands created files "
                "that git or other programs would run."
            )
        texts = tuple(map(_describe_planted_file, found))
        for text in texts:
            self._selection.note(text)
        if changed:
            shown = ", ".join(map(escape_filename, changed[:_MAX_SHOWN]))
            more = f" and {len(changed) - _MAX_SHOWN} more" if len(changed) > _MAX_SHOWN else ""
            text = format_backend_notice("hidden_files_changed", paths=shown + more)
            self._selection.note(text)
            self._repository_notices.append(text)
        notices, self._repository_notices = self._repository_notices, []
        return (*texts, *notices)

    async def _mark_hidden_files(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Mark them in the index. A repository where that fails is sealed for this command."""
        marks, marked = self._selection.marks, policy.marked_repositories
        failed = tuple(marked) if marks is None else await marks.acquire(marked)
        sealed = {each: paths[0] for each, paths in marked.items() if each in failed and paths}
        return replace(policy, sealed_repositories={**policy.sealed_repositories, **sealed})

    async def _unmark_hidden_files(self) -> tuple[Path, ...]:
        return () if self._selection.marks is None else await self._selection.marks.release()

    def _note_sealed_repositories(self, policy: SandboxPolicy, launch: ProcessLaunchSpec) -> None:
        """Tell the user once, and the agent with each command that may show the state of a repository."""
        uses_git = any(re.search(r"\bgit\b", word) for word in launch.argv)
        for path in policy.sealed_repositories.values():
            text = format_backend_notice("sealed_repository", path=escape_filename(path))
            if uses_git or text not in self._reported:
                self._repository_notices.append(text)
            self._note_once(text)
        marked = [paths[0] for paths in policy.marked_repositories.values() if paths]
        if marked and uses_git:
            text = format_backend_notice("marked_repository", path=escape_filename(marked[0]))
            if text not in self._reported:
                self._reported.add(text)
                self._repository_notices.append(text)

    def _note_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._selection.note(text)


def _unseal(policy: SandboxPolicy) -> SandboxPolicy:
    """Return the policy for a driver that does not hide tracked files, so that git sees them as they are."""
    return replace(policy, sealed_repositories={}, marked_repositories={}, replaced_directories={})


def _add_git_settings(launch: ProcessLaunchSpec, policy: SandboxPolicy) -> ProcessLaunchSpec:
    """Add the settings in git's variables, after those that the user has there."""
    if not any(policy.marked_repositories.values()):
        return launch
    count = launch.env.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(policy.git_settings))}
    for number, (key, value) in enumerate(policy.git_settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return replace(launch, env={**launch.env, **variables})


def _describe_planted_file(path: Path) -> str:
    place = escape_filename(path)
    if path.name in (".git", "HEAD", "commondir", "config.worktree"):
        return (
            f"A command created {place}. Git runs programs from the config and hooks there; Shoal does not. "
            f"Check them before you use git there."
        )
    return (
        f"A command created {place}, which other programs read and act on. Check it before you use those "
        f"programs there."
    )


def list_sandbox_drivers(path: str) -> tuple[SandboxDriver, ...]:
    """Return the drivers of this system, best first. `path` is where programs are looked up."""
    return {
        "linux": (BubblewrapSandboxDriver(path), LandlockSandboxDriver()),
        "darwin": (SeatbeltSandboxDriver(),),
    }.get(sys.platform, ())


def detect_sandbox_driver(drivers: Sequence[SandboxDriver]) -> DetectedSandboxDriver:
    problems: list[str] = []
    for kind in drivers:
        problem = kind.explain_unavailable()
        if problem is None:
            return DetectedSandboxDriver(driver=kind, problems=tuple(problems))
        problems.append(problem)
    return DetectedSandboxDriver(driver=None, problems=tuple(problems))
