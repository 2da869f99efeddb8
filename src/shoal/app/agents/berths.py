"""Launches the teammates of a session on a backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.agents.brief import Brief, opened_by, sealed
from shoal.app.agents.choosing_backends import Backends, chosen
from shoal.app.agents.orders import name_of
from shoal.app.agents.seats import worded_mode
from shoal.app.authority import authority_of
from shoal.core.agents import Order
from shoal.core.backends import MARKS, Berth, Papers, Wanted
from shoal.core.budget import Purse
from shoal.core.decisions import Mode
from shoal.core.errors import AgentRefused, ProcessError
from shoal.core.ids import AgentId
from shoal.core.ports import Model, Processes
from shoal.core.roster import BackendType
from shoal.core.roster import Member as Entered
from shoal.team.purse_afar import Rules
from shoal.tools.shells import Shells

if TYPE_CHECKING:
    from shoal.agent.agent import Agent
    from shoal.app.agents.crewing import Ground

ENTRY = "shoal.app.session.outpost:main"
PRELOADED = ("shoal.app.session.rehearsal",)


class Shore(Struct, frozen=True, kw_only=True):
    """Session services that launching a teammate's process needs."""

    cwd: Path
    model: Model
    """Model of the lead when the session was opened."""
    transcript: Path
    processes: Processes
    shells: Shells
    note: Callable[[str], None]
    hear: Callable[[bytes], None]
    """Called with each line that a teammate in another process wrote to the journal."""
    trace: Callable[[AgentId, str], str]
    """Returns the trace parent for a teammate that this call spawned."""


class Berths:
    """Launches members; it chooses the backend for each one, because a person may have moved into tmux."""

    def __init__(self, ground: Ground, lead: Callable[[], Agent]) -> None:
        self._on = ground
        self._lead = lead
        self._backends = Backends(ground, lambda: lead().identity.session)

    def foreign(self, kind: str) -> bool:
        return kind in self._on.settings.own.teammate_programs

    async def place(self, kind: str) -> BackendType:
        """Return the configured backend. Raises `AgentRefused` if it is unavailable; there is no fallback."""
        on, foreign = self._on, self.foreign(kind)
        place = chosen(on.settings, attended=on.options.attended, foreign=foreign)
        if place == "in-process":
            return place
        why = ("" if foreign else self._bound_here()) or await self._backends.trouble_with(place)
        if why and on.settings.own.teammate_mode == "auto" and not foreign:
            return "in-process"
        if why:
            raise AgentRefused(f"The teammate was not started: {why}")
        return place

    async def prepare(self) -> None:
        place = chosen(self._on.settings, attended=self._on.options.attended, foreign=False)
        if place != "in-process" and not self._bound_here():
            self._on.shore.shells.prepare()
            with suppress(ProcessError):  # the launch of the member reports it
                await self._backends.of(place).prepare()

    async def start(self, entered: Entered, order: Order | None, *, mode: Mode | None, call: str) -> Berth:
        on, place = self._on, await self.place(entered.agent_type)
        wanted = Wanted(
            papers=self._papers(entered, mode),
            cwd=self._begins_in(entered),
            env={**on.settings.environ, **MARKS},
            brief=b"" if self.foreign(entered.agent_type) else self._brief(entered, order, mode, call),
            program=on.settings.own.teammate_programs.get(entered.agent_type, ()),
            split=on.settings.own.split_panes,
        )
        try:
            return await self._backends.of(place).spawn(wanted)
        except ProcessError as error:
            self._backends.look_again()
            raise AgentRefused(f"The teammate {entered.name} was not started: {error}") from error

    def _begins_in(self, entered: Entered) -> Path:
        """Return its directory, or the project root if its unused worktree was removed while it was idle."""
        cwd = Path(entered.cwd)
        return cwd if cwd.is_dir() else self._lead().surroundings.workspace.root

    async def aclose(self) -> None:
        await self._backends.aclose()

    def _bound_here(self) -> str:
        """Return the reason why teammates must run in this process; empty if there is none."""
        options = self._on.options
        if not options.persist:
            return "a session that keeps nothing on disk has its teammates in its own process."
        if options.model is not None and not isinstance(options.model, str):
            return (
                "the model was given as an object, which no other process can have. Give it by name, "
                'or set shoal.teammate_mode to "in-process".'
            )
        if options.tools or options.hooks:
            return (
                "tools and hooks of the program's own cannot be had in other processes. "
                'Set shoal.teammate_mode to "in-process".'
            )
        return ""

    def _papers(self, entered: Entered, wish: Mode | None) -> Papers:
        on = self._on
        mode, skips = worded_mode(authority_of(self._lead()), wish)
        return Papers(
            agent=AgentId(entered.agent_id),
            name=entered.name,
            team=entered.team,
            color=entered.color,
            session=self._lead().identity.session,
            kind=entered.agent_type,
            model=entered.model,
            plan_mode_required=bool(entered.plan_mode_required),
            mode=mode,
            allowed=tuple(on.options.allowed_tools),
            disallowed=tuple(on.options.disallowed_tools),
            skip_permissions=skips,
        )

    def _brief(self, entered: Entered, order: Order | None, mode: Mode | None, call: str) -> bytes:
        on, lead = self._on, self._lead()
        authority = authority_of(lead)
        named = on.options.model if lead.model is on.shore.model else name_of(lead.model)
        return sealed(
            Brief(
                name=entered.name,
                team=entered.team,
                order=order,
                mode=mode,
                call=call,
                session=lead.identity.session,
                trace=on.shore.trace(AgentId(entered.agent_id), call),
                run=str(on.directory),
                transcript=str(on.shore.transcript),
                snapshot=str(on.shore.shells.commands.taken or ""),
                rules=_rules(on.purse),
                answered=authority.answers.updates,
                opened=opened_by(
                    on.options,
                    cwd=on.shore.cwd,
                    model=named if isinstance(named, str) else None,
                    mode=authority.mode,
                    seed=None if on.options.seed is None else on.ids.random.getrandbits(63),
                ),
            )
        )


def _rules(purse: Purse) -> Rules:
    tree = purse.limits
    if purse.until is not None:
        tree = replace(tree, max_seconds=max(0.0, purse.until - purse.clock.monotonic()))
    return Rules(tree=tree, per_agent=purse.per_agent, per_type=dict(purse.per_type))
