"""Workspaces of agents: the parent's files, or a separate git worktree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.quarters.confines import worktree_sandbox
from shoal.app.quarters.leases import Leases
from shoal.app.settings.settings import Settings
from shoal.core.agents import KeptWork
from shoal.core.clock import Clock
from shoal.core.errors import AgentRefused, WorktreeError
from shoal.core.events import FileChanged, Journaled
from shoal.core.filenames import shown
from shoal.core.ids import AgentId
from shoal.core.sandbox import Sandbox
from shoal.core.worktrees import Kept, Removed
from shoal.runs.outfit import Newcomer
from shoal.workspaces.local import LocalWorkspace
from shoal.workspaces.repository import head_commit

if TYPE_CHECKING:
    from shoal.workspaces.worktree import Worktree, WorktreeWorkspace
    from shoal.workspaces.worktrees import Worktrees

_COMMITS = 50


async def _nothing() -> KeptWork | None:
    return None


class Secluded(Struct, kw_only=True):
    """Paths that rules exclude from reading; set later, as the rules are made after the workspace."""

    paths: Callable[[], Sequence[Path]] = tuple

    def now(self) -> Sequence[Path]:
        return self.paths()


class Quarters(Struct, frozen=True, kw_only=True):
    workspace: LocalWorkspace
    sandbox: Sandbox | None = None
    """Sandbox for its commands, in place of the session's."""
    secluded: Secluded | None = None
    main: Path | None = None
    """Checkout that its worktree was made from, which it must not change."""
    name: str = ""
    told: str = ""
    """Text about the workspace for the agent's prompt."""
    notes: tuple[str, ...] = ()
    finish: Callable[[], Awaitable[KeptWork | None]] = _nothing
    lend: Callable[[Path], None] = lambda _: None
    """Lets its file tools write in a directory outside the workspace."""
    commits: Callable[[], Awaitable[tuple[str, ...]]]


class Housing:
    """Allocates workspaces to agents. `session_directory` holds the session's own data."""

    def __init__(
        self,
        settings: Settings,
        record: Path,
        clock: Clock,
        *,
        emit: Callable[[Journaled], None],
        note: Callable[[str], None],
        turn: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._record = record
        self._clock = clock
        self._emit = emit
        self._note = note
        self._turn = turn
        self._worktrees: dict[Path, Worktrees] = {}
        self._clean: list[Worktrees] = []
        """Repositories whose leftovers of dead processes were removed."""
        self.leases = Leases(settings.own.file_leases)

    def beside(self, newcomer: Newcomer) -> Quarters:
        """Return a separate view of the parent's files."""
        theirs = newcomer.parent.surroundings.workspace
        assert isinstance(theirs, LocalWorkspace)
        workspace = theirs.beside(self._changed(newcomer, theirs.root))
        workspace.guard = self.leases.guard(newcomer.agent)
        workspace.begin_turn(self._turn())
        return Quarters(
            workspace=workspace,
            sandbox=newcomer.parent.surroundings.sandbox,
            commits=self._commits(newcomer, workspace.root),
        )

    async def apart(self, newcomer: Newcomer, again: str = "", *, forks: bool = False) -> Quarters:
        """Return a new worktree, or the previous one. Raises `AgentRequestRefused` without isolation."""
        from shoal.app.hooks.worktrees import made_by_hook
        from shoal.workspaces.given_worktree import told_of_given
        from shoal.workspaces.worktree import told_to_agent, told_to_fork

        theirs = newcomer.parent.surroundings.workspace
        worktrees: Worktrees | None = None
        try:
            given = await made_by_hook(newcomer, again, self._clock.now())
            if given is None:
                worktree, worktrees = await self._made(theirs.root, newcomer, again)
            else:
                worktree = given
            workspace = worktree.workspace(
                granted=theirs.granted,
                lent=(self._settings.home / "plans",),
                changed=self._changed(newcomer, worktree.path),
            )
            workspace.guard = self.leases.guard(newcomer.agent)
            secluded = Secluded()
            sandbox = await self._sandbox(newcomer, worktree, workspace, secluded)
        except WorktreeError as error:
            raise AgentRefused(f"The agent was not started: it cannot have a worktree. {error}") from error
        workspace.begin_turn(self._turn())

        async def finish() -> KeptWork | None:
            if worktrees is None:
                # A worktree made by a hook is always kept: its content is unknown.
                return KeptWork(path=str(worktree.path), branch="")
            return await self._finished(worktrees, worktree, newcomer)

        return Quarters(
            workspace=workspace,
            sandbox=sandbox,
            secluded=secluded,
            main=worktree.record.checkout,
            name=worktree.name,
            told=told_of_given(given) if given else (told_to_fork if forks else told_to_agent)(worktree),
            notes=worktree.notes,
            finish=finish,
            lend=workspace.lend,
            commits=self._commits(newcomer, workspace.root, worktree.record.base or None),
        )

    async def settled(self, root: Path, place: Path) -> KeptWork | None:
        """Return the kept work of an agent whose process ended before its worktree was finished."""
        try:
            done = await self._of(root).settle(place)
        except (WorktreeError, OSError) as error:
            self._note(f"The worktree {shown(place)} is kept as it is: {error}")
            return KeptWork(path=str(place), branch="")
        return _kept_work(done) if isinstance(done, Kept) else None

    async def settle_left(self, root: Path, session: str, going_on: Collection[Path]) -> None:
        """Settle worktrees of dead processes of the session, except those whose agents may be resumed."""
        if not any((self._settings.home / "worktrees").glob("*/agent-*.json")):
            return
        try:
            self._tell_kept(await self._of(root).settle_left(session, going_on))
        except (WorktreeError, OSError) as error:
            self._note(f"Not all that was made for agents could be taken away: {error}")

    def close(self) -> None:
        for worktrees in self._worktrees.values():
            worktrees.close()

    def _of(self, root: Path) -> Worktrees:
        if root not in self._worktrees:
            from shoal.app.quarters.worktrees import worktrees_of

            settings = self._settings
            self._worktrees[root] = worktrees_of(
                root, home=settings.home, environ=settings.environ, clock=self._clock
            )
        return self._worktrees[root]

    async def _swept(self, worktrees: Worktrees) -> None:
        """Remove leftovers of dead processes once, after resumed agents have their worktrees back."""
        if worktrees in self._clean:
            return
        self._clean.append(worktrees)
        self._tell_kept(await worktrees.reap())

    def _tell_kept(self, settled: Sequence[Kept | Removed]) -> None:
        for left in settled:
            if isinstance(left, Kept):
                self._note(f"Work of an agent that was cut off is kept in {shown(left.path)}.")

    async def _made(self, root: Path, newcomer: Newcomer, again: str) -> tuple[Worktree, Worktrees]:
        session, worktrees = newcomer.parent.identity.session, self._of(root)
        if again:
            try:
                return await worktrees.reopen(again, session=session), worktrees
            except WorktreeError:
                # Its work was merged, or it had none: continue in a new worktree.
                pass
        await self._swept(worktrees)
        agent = str(newcomer.agent)
        if newcomer.seat is not None:
            # A member's id is its name and team, which other members have had or will have.
            agent = sha256(f"{session} {agent} {newcomer.call} {again}".encode()).hexdigest()[:16]
        return await worktrees.make(agent, session=session), worktrees

    async def _sandbox(
        self, newcomer: Newcomer, worktree: Worktree, workspace: WorktreeWorkspace, secluded: Secluded
    ) -> Sandbox:
        try:
            return await worktree_sandbox(
                self._settings, worktree, workspace, self._record, self._note, secluded.now
            )
        except BaseException:
            await self._undone(newcomer, worktree)
            raise

    async def _undone(self, newcomer: Newcomer, worktree: Worktree) -> None:
        from shoal.app.hooks.worktrees import tell_removed

        if worktree.record.branch:
            await self._of(newcomer.parent.surroundings.workspace.root).finish(worktree)
        else:
            await tell_removed(newcomer, worktree.name, worktree.path)

    async def _finished(
        self, worktrees: Worktrees, worktree: Worktree, newcomer: Newcomer
    ) -> KeptWork | None:
        from shoal.app.hooks.worktrees import tell_removed

        try:
            done = await worktrees.finish(worktree)
        except (WorktreeError, OSError) as error:
            self._note(f"The worktree {shown(worktree.path)} is kept as it is: {error}")
            return KeptWork(path=str(worktree.path), branch=worktree.record.branch)
        if not isinstance(done, Kept):
            await tell_removed(newcomer, worktree.name, worktree.path)
            return None
        return _kept_work(done)

    def _changed(self, newcomer: Newcomer, root: Path) -> Callable[[int, Path], None]:
        agent: AgentId = newcomer.agent

        def changed(turn: int, path: Path) -> None:
            self.leases.take(agent, path, root)
            newcomer.witness.changed(shown(path))
            self._emit(FileChanged(agent=agent, turn=turn, path=shown(path)))

        return changed

    def _commits(
        self, newcomer: Newcomer, root: Path, base: str | None = None
    ) -> Callable[[], Awaitable[tuple[str, ...]]]:
        """Return a function that lists the checkout's commits since the agent first used a shell."""
        before: list[str | None] = [base]

        def remember() -> None:
            before[0] = before[0] or head_commit(root)

        newcomer.witness.before_shell = remember

        async def commits() -> tuple[str, ...]:
            since = before[0]
            if since is None or head_commit(root) == since:
                return ()
            from shoal.workspaces.git import Git

            git = Git(self._settings.environ, self._clock)
            try:
                said = await git("log", f"-{_COMMITS}", "--format=%h %s", f"{since}..HEAD", at=root)
            except WorktreeError:
                return ()
            return tuple(said.text.splitlines())

        return commits


def _kept_work(done: Kept) -> KeptWork:
    commits = 0 if done.work is None else done.work.commits
    return KeptWork(path=str(done.path), branch=done.branch, ref=done.ref or "", commits=commits)
