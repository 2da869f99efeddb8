"""Messages from agents to the leads of other live sessions in the same home."""

from __future__ import annotations

from pathlib import Path

from shoal.app.outside.watching import Run, demand, live_sessions
from shoal.core.agents import OTHER_MACHINE, OTHER_SESSION, Reached
from shoal.core.errors import AgentRefused, ShoalError
from shoal.core.identity import Identity
from shoal.core.ids import LEAD
from shoal.wire.control import Relay

_SHOWN_ID = 8
_NAMED = 10


class Abroad:
    def __init__(self, home: Path) -> None:
        self._home = home

    async def send(self, to: str, text: str, summary: str, sender: Identity) -> Reached:
        """Send to another session's lead. Raises `AgentRequestRefused`, naming the live sessions."""
        if to.startswith(OTHER_MACHINE):
            raise AgentRefused(
                "bridge: reaches sessions on other machines, and no bridge to one is configured. "
                "uds:SESSION reaches a session of this machine."
            )
        run = self._meant(to.removeprefix(OTHER_SESSION), sender)
        relay = Relay(sender=f"{sender.name}@{sender.session[:_SHOWN_ID]}", text=text, summary=summary)
        try:
            await demand(run, relay)
        except ShoalError as error:
            raise AgentRefused(f"The session {run.session} was not reached: {error}") from error
        return Reached(to=LEAD, name=f"The lead of session {run.session}", how="queued")

    def _meant(self, name: str, sender: Identity) -> Run:
        if name and sender.session.startswith(name):
            raise AgentRefused("That is your own session: write to `lead` to reach its lead.")
        live = [run for run in live_sessions(self._home) if run.session != sender.session]
        found = [run for run in live if name and run.session.startswith(name)]
        if len(found) == 1:
            return found[0]
        why = f"{len(found)} live sessions start with {name!r}" if found else f"no live session is {name!r}"
        there = ", ".join(run.session for run in live[:_NAMED]) or "no other"
        raise AgentRefused(f"The message was not sent: {why}. Live now: {there}.")
