"""Where an agent works: beside its parent in the same files, or in a git worktree of its own."""

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
    """What rules keep the agent's commands from reading; its rules are made after its quarters."""

    paths: Callable[[], Sequence[Path]] = tuple

    def now(self) -> Sequence[Path]:
        return self.paths()


class Quarters(Struct, frozen=True, kw_only=True):
    workspace: LocalWorkspace
    sandbox: Sandbox | None = None
    """Holds its commands in place of the session's."""
    secluded: Secluded | None = None
    main: Path | None = None
    """The checkout that its worktree was made from, which it must leave alone."""
    name: str = ""
    told: str = ""
    """What the agent must know about it."""
    notes: tuple[str, ...] = ()
    finish: Callable[[], Awaitable[KeptWork | None]] = _nothing
    lend: Callable[[Path], None] = lambda _: None
    """Lets its file tools write in a directory outside, where its place alone would not."""
    commits: Callable[[], Awaitable[tuple[str, ...]]]


class Housing:
    """Gives agents their quarters. `record` is the directory of the session's own record."""

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
        """Where what the dead left was cleared."""
        self.leases = Leases(settings.own.file_leases)

    def beside(self, newcomer: Newcomer) -> Quarters:
        """A view of its own of its parent's files."""
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
        """A worktree of its own, or the one it had. Raises `AgentRefused` where isolation cannot hold."""
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
                # What a hook made is always kept: nobody knows what is in it.
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
        """The work of an agent whose process ended before it could be seen to."""
        try:
            done = await self._of(root).settle(place)
        except (WorktreeError, OSError) as error:
            self._note(f"The worktree {shown(place)} is kept as it is: {error}")
            return KeptWork(path=str(place), branch="")
        return _kept_work(done) if isinstance(done, Kept) else None

    async def settle_left(self, root: Path, session: str, going_on: Collection[Path]) -> None:
        """What dead processes of the session left, but for the places where their agents may go on."""
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
        """Clear what dead processes left there, once. Not before agents that go on have theirs again."""
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
                # Its work was merged or it had none: it goes on in a new one.
                pass
        await self._swept(worktrees)
        agent = str(newcomer.agent)
        if newcomer.seat is not None:
            # A teammate's id is its name and team, which others have had or will have.
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
        """The commits made since it first used a shell; of agents that share a checkout, by any of them."""
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
