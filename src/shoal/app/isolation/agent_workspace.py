"""Workspaces of agents: the parent's files, or a separate git worktree."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.agent_permissions import get_permission_engine
from shoal.app.isolation.repository_worktrees import open_worktrees, read_worktree_options
from shoal.app.isolation.sandbox_policies import create_worktree_sandbox_selection
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.settings import Settings
from shoal.backends.sandbox.sandbox_selection import DriverSelectingSandbox, SandboxSelection
from shoal.core.agents.subagents import RetainedWorktreeWork
from shoal.core.agents.worktrees import RemovedWorktree, RetainedWorktree
from shoal.core.clock import Clock
from shoal.core.errors import AgentUnusable, SettingsError, WorkspaceError, WorktreeError
from shoal.core.events import FileChanged, JournaledEvent
from shoal.core.ids import AgentId
from shoal.core.permissions.sandbox import Sandbox
from shoal.core.text.filenames import escape_filename
from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex
from shoal.runs.prepared_agent import AgentPreparationRequest
from shoal.workspaces.git_paths import read_head_commit_without_git
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.workspaces.worktree import Worktree, WorktreeWorkspace
    from shoal.workspaces.worktree_service import WorktreeService

_MAX_COMMITS = 50


class AgentFileWriteLeases:
    """Leases by path. `patterns` are as in permission rules. The lead takes none: it outlives all agents."""

    def __init__(self, patterns: Sequence[str], home: str) -> None:
        """Raises `SettingsError` for an invalid pattern."""
        self._patterns = tuple(patterns)
        self._home = home
        self._holders: dict[Path, AgentId] = {}
        self._expression = cache(self._compile_patterns)
        self._expression("/")

    def acquire(self, agent: AgentId, path: Path, root: Path) -> None:
        """Reserve a file that the agent has changed."""
        if self._patterns and self._expression(str(root)).fullmatch(str(path)) is not None:
            self._holders.setdefault(path, agent)

    def create_write_guard(self, agent: AgentId) -> Callable[[Path], None]:
        """Return a check that raises `WorkspaceError` if this agent writes to a file another one holds."""

        def refuse_write_to_leased_file(path: Path) -> None:
            holder = self._holders.get(path, agent)
            if holder != agent:
                raise WorkspaceError(
                    format_session_notice("leased_file", path=escape_filename(path), holder=holder)
                )

        return refuse_write_to_leased_file

    def release_agent_leases(self, agent: AgentId) -> None:
        for path in [path for path, holder in self._holders.items() if holder == agent]:
            del self._holders[path]

    def _compile_patterns(self, root: str) -> re.Pattern[str]:
        expressions = []
        for pattern in self._patterns:
            try:
                expressions.append(f"(?:{convert_path_pattern_to_regex(pattern, root, self._home)})")
            except InvalidPathPatternError as error:
                raise SettingsError(
                    f'The setting "file_leases" has the invalid pattern {pattern!r}: {error}.'
                ) from error
        return re.compile("|".join(expressions), re.DOTALL)


async def _retain_no_worktree_work() -> RetainedWorktreeWork | None:
    return None


class AgentCommits:
    """Commits in a checkout since the agent first used a shell there, or since `base`."""

    __slots__ = ("_base", "_clock", "_environ", "_root")

    def __init__(self, root: Path, base: str, environ: Mapping[str, str], clock: Clock) -> None:
        self._root = root
        self._base = base
        self._environ = environ
        self._clock = clock

    def remember_head_commit(self) -> None:
        self._base = self._base or read_head_commit_without_git(self._root) or ""

    async def list_commits(self) -> tuple[str, ...]:
        if not self._base or read_head_commit_without_git(self._root) == self._base:
            return ()
        from shoal.workspaces.git_runner import GitRunner

        git = GitRunner(self._environ, self._clock)
        try:
            log = await git("log", f"-{_MAX_COMMITS}", "--format=%h %s", f"{self._base}..HEAD", at=self._root)
        except WorktreeError:
            return ()
        return tuple(log.text.splitlines())


class AgentWorkspace(Struct, frozen=True, kw_only=True):
    workspace: LocalWorkspace
    parent_sandbox: Sandbox | None = None
    """Sandbox of its parent's commands; None for the session's."""
    sandbox_selection: SandboxSelection | None = None
    """Selection of a separate sandbox, for an agent in a worktree."""
    main_checkout: Path | None = None
    """Checkout that its worktree was made from, which it must not change."""
    name: str = ""
    agent_notice: str = ""
    """Text about the workspace for the agent's prompt."""
    notes: tuple[str, ...] = ()
    finish: Callable[[], Awaitable[RetainedWorktreeWork | None]] = _retain_no_worktree_work
    commits: AgentCommits

    def create_sandbox(self, list_unreadable: Callable[[], Sequence[Path]]) -> Sandbox | None:
        """Return the sandbox for its commands; None for the session's."""
        if self.sandbox_selection is None:
            return self.parent_sandbox
        return DriverSelectingSandbox(self.sandbox_selection, list_unreadable)


class WorkspaceAllocator:
    """Allocates workspaces to agents. `session_directory` holds the session's own data."""

    def __init__(
        self,
        settings: Settings,
        session_directory: Path,
        clock: Clock,
        *,
        emit: Callable[[JournaledEvent], None],
        note: Callable[[str], None],
        turn: Callable[[], int],
        shared_objects: tuple[Path, ...] = (),
    ) -> None:
        """`shared_objects` are directories that the repository of this session borrows objects from."""
        self._settings = settings
        self._session_directory = session_directory
        self._clock = clock
        self._emit = emit
        self._note = note
        self._reported_notes: set[str] = set()
        self._turn = turn
        self._shared_objects = shared_objects
        self._worktrees: dict[Path, WorktreeService] = {}
        self._reaped: list[WorktreeService] = []
        """Repositories in which the leftovers of dead processes were removed."""
        self.leases = AgentFileWriteLeases(settings.own.file_leases, settings.user.home)

    def allocate_shared_workspace(self, new_agent: AgentPreparationRequest) -> AgentWorkspace:
        """Return a separate view of the parent's files."""
        parent_workspace = new_agent.parent.environment.workspace
        assert isinstance(parent_workspace, LocalWorkspace)
        workspace = parent_workspace.create_sibling(
            self._make_file_change_handler(new_agent, parent_workspace.root),
            self.leases.create_write_guard(new_agent.agent),
        )
        workspace.set_checkpoint_turn(self._turn())
        return AgentWorkspace(
            workspace=workspace,
            parent_sandbox=new_agent.parent.environment.sandbox,
            commits=self._track_commits(new_agent, workspace.root),
        )

    async def allocate_worktree_workspace(
        self, new_agent: AgentPreparationRequest, previous: str = "", *, is_fork: bool = False
    ) -> AgentWorkspace:
        """Return a new worktree, or the previous one. Raises `AgentRequestRefused` without isolation."""
        from shoal.app.hooks.worktree_hooks import create_worktree_by_hook
        from shoal.workspaces.external_worktree import describe_external_worktree
        from shoal.workspaces.worktree import describe_worktree, describe_worktree_to_fork

        parent_workspace = new_agent.parent.environment.workspace
        worktrees: WorktreeService | None = None
        try:
            external = await create_worktree_by_hook(new_agent, previous, self._clock.now())
            if external is None:
                worktree, worktrees = await self._create_or_reopen_worktree(
                    parent_workspace.root, new_agent, previous
                )
            else:
                worktree = external
            workspace = worktree.create_workspace(
                granted=parent_workspace.granted_directories,
                extra_writable=(self._settings.home / "plans",),
                on_change=self._make_file_change_handler(new_agent, worktree.path),
                write_guard=self.leases.create_write_guard(new_agent.agent),
                user=parent_workspace.user,
            )
            selection = await self._select_sandbox_for_worktree(new_agent, worktree, workspace)
        except WorktreeError as error:
            raise AgentUnusable(format_session_notice("no_worktree", error=error)) from error
        workspace.set_checkpoint_turn(self._turn())

        async def finish_worktree() -> RetainedWorktreeWork | None:
            if worktrees is None:
                # A worktree made by a hook is always kept: its content is unknown.
                return RetainedWorktreeWork(path=str(worktree.path), branch="")
            return await self._finish_worktree(worktrees, worktree, new_agent)

        return AgentWorkspace(
            workspace=workspace,
            sandbox_selection=selection,
            main_checkout=worktree.record.checkout,
            name=worktree.name,
            agent_notice=describe_external_worktree(external)
            if external
            else (describe_worktree_to_fork if is_fork else describe_worktree)(worktree),
            notes=worktree.notes,
            finish=finish_worktree,
            commits=self._track_commits(new_agent, workspace.root, worktree.record.base or ""),
        )

    async def finish_orphaned_worktree(self, root: Path, path: Path) -> RetainedWorktreeWork | None:
        """Return the kept work of an agent whose process ended before its worktree was finished."""
        try:
            settled = await self._get_worktree_service(root).settle_abandoned_worktree_at(path)
        except (WorktreeError, OSError) as error:
            self._note(f"The worktree {escape_filename(path)} is kept: {error}")
            return RetainedWorktreeWork(path=str(path), branch="")
        return _to_retained_worktree_work(settled) if isinstance(settled, RetainedWorktree) else None

    async def finish_leftover_worktrees(self, root: Path, session: str, resuming: Collection[Path]) -> None:
        """Settle worktrees of dead processes of the session, except those whose agents may be resumed."""
        if not any((self._settings.home / "worktrees").glob("*/agent-*.json")):
            return
        try:
            self._report_retained_worktrees(
                await self._get_worktree_service(root).settle_session_worktrees(session, resuming)
            )
        except (WorktreeError, OSError) as error:
            self._note(f"Could not remove everything that Shoal created for agents: {error}")

    def close(self) -> None:
        for worktrees in self._worktrees.values():
            worktrees.close()

    def _get_worktree_service(self, root: Path) -> WorktreeService:
        if root not in self._worktrees:
            settings = self._settings
            self._worktrees[root] = open_worktrees(
                root, home=settings.home, environ=settings.environ, clock=self._clock
            )
        return self._worktrees[root]

    async def _remove_abandoned_worktrees_once(self, worktrees: WorktreeService) -> None:
        """Remove leftovers of dead processes once, after resumed agents have their worktrees back."""
        if worktrees in self._reaped:
            return
        self._reaped.append(worktrees)
        self._report_retained_worktrees(await worktrees.reap_abandoned_worktrees())

    def _report_retained_worktrees(self, settled: Sequence[RetainedWorktree | RemovedWorktree]) -> None:
        for worktree in settled:
            if isinstance(worktree, RetainedWorktree):
                self._note(f"The work of an interrupted agent is kept in {escape_filename(worktree.path)}.")

    async def _create_or_reopen_worktree(
        self, root: Path, new_agent: AgentPreparationRequest, previous: str
    ) -> tuple[Worktree, WorktreeService]:
        session, worktrees = new_agent.parent.identity.session, self._get_worktree_service(root)
        if previous:
            try:
                return await worktrees.reopen_worktree(previous, session=session), worktrees
            except WorktreeError:
                # Its work was merged, or it had none: continue in a new worktree.
                pass
        await self._remove_abandoned_worktrees_once(worktrees)
        agent = str(new_agent.agent)
        if new_agent.assignment is not None:
            # A member's id is its name and team, which other members have had or will have.
            agent = sha256(f"{session} {agent} {new_agent.call} {previous}".encode()).hexdigest()[:16]
        options, notes = read_worktree_options(self._settings.documents)
        worktree = await worktrees.create_worktree(agent, session=session, options=options)
        is_hidden = get_permission_engine(new_agent.parent).build_unreadable_file_filter("Read", str(root))
        try:
            notes += await worktrees.add_untracked_files(worktree, options.links, is_hidden)
        except (WorktreeError, OSError) as error:
            notes += (f"Untracked files are missing in the worktree: {error}",)
        # The result of an agent in the foreground does not contain them, and other agents have the same.
        for note in notes:
            if note not in self._reported_notes:
                self._reported_notes.add(note)
                self._note(note)
        return replace(worktree, notes=(*worktree.notes, *notes)), worktrees

    async def _select_sandbox_for_worktree(
        self, new_agent: AgentPreparationRequest, worktree: Worktree, workspace: WorktreeWorkspace
    ) -> SandboxSelection:
        worktree = replace(worktree, shared_objects=self._shared_objects)
        try:
            return await create_worktree_sandbox_selection(
                self._settings, worktree, workspace, self._session_directory, self._note
            )
        except BaseException:
            await self._discard_worktree(new_agent, worktree)
            raise

    async def _discard_worktree(self, new_agent: AgentPreparationRequest, worktree: Worktree) -> None:
        from shoal.app.hooks.worktree_hooks import run_worktree_remove_hooks

        if worktree.record.branch:
            await self._get_worktree_service(new_agent.parent.environment.workspace.root).finish_worktree(
                worktree
            )
        else:
            await run_worktree_remove_hooks(new_agent, worktree.name, worktree.path)

    async def _finish_worktree(
        self, worktrees: WorktreeService, worktree: Worktree, new_agent: AgentPreparationRequest
    ) -> RetainedWorktreeWork | None:
        from shoal.app.hooks.worktree_hooks import run_worktree_remove_hooks

        try:
            finished = await worktrees.finish_worktree(worktree)
        except (WorktreeError, OSError) as error:
            self._note(f"The worktree {escape_filename(worktree.path)} is kept: {error}")
            return RetainedWorktreeWork(path=str(worktree.path), branch=worktree.record.branch)
        if not isinstance(finished, RetainedWorktree):
            await run_worktree_remove_hooks(new_agent, worktree.name, worktree.path)
            return None
        return _to_retained_worktree_work(finished)

    def _make_file_change_handler(
        self, new_agent: AgentPreparationRequest, root: Path
    ) -> Callable[[int, Path], None]:
        agent: AgentId = new_agent.agent

        def on_file_changed(turn: int, path: Path) -> None:
            self.leases.acquire(agent, path, root)
            new_agent.monitor.add_changed_file(escape_filename(path))
            self._emit(FileChanged(agent=agent, turn=turn, path=escape_filename(path)))

        return on_file_changed

    def _track_commits(self, new_agent: AgentPreparationRequest, root: Path, base: str = "") -> AgentCommits:
        commits = AgentCommits(root, base, self._settings.environ, self._clock)
        if not base:
            new_agent.monitor.subscribe_to_first_shell_command(commits.remember_head_commit)
        return commits


def _to_retained_worktree_work(retained: RetainedWorktree) -> RetainedWorktreeWork:
    commits = 0 if retained.work is None else retained.work.commits
    return RetainedWorktreeWork(
        path=str(retained.path), branch=retained.branch, ref=retained.ref or "", commits=commits
    )
