"""Messages from agents to the leads of other live sessions in the same home."""

from __future__ import annotations

from pathlib import Path

from shoal.app.run_access.run_handle import RunHandle, list_all_live_runs, send_control_command
from shoal.core.agents import OTHER_MACHINE_PREFIX, OTHER_SESSION_PREFIX, AgentMessageDeliveryReceipt
from shoal.core.errors import AgentRequestRefused, ShoalError
from shoal.core.identity import AgentIdentity
from shoal.core.ids import LEAD_ID
from shoal.wire.control_codec import RelayAgentMessageControlCommand

_ID_CHARS = 8
_MAX_LISTED = 10


class CrossSessionMessenger:
    def __init__(self, home: Path) -> None:
        self._home = home

    async def send(
        self, to: str, text: str, summary: str, sender: AgentIdentity
    ) -> AgentMessageDeliveryReceipt:
        """Send to another session's lead. Raises `AgentRequestRefused`, naming the live sessions."""
        if to.startswith(OTHER_MACHINE_PREFIX):
            raise AgentRequestRefused(
                "bridge: reaches sessions on other machines, and no bridge to one is configured. "
                "uds:SESSION reaches a session of this machine."
            )
        run = self._find_recipient_session(to.removeprefix(OTHER_SESSION_PREFIX), sender)
        relay = RelayAgentMessageControlCommand(
            sender=f"{sender.name}@{sender.session[:_ID_CHARS]}", text=text, summary=summary
        )
        try:
            await send_control_command(run, relay)
        except ShoalError as error:
            raise AgentRequestRefused(f"The session {run.session} was not reached: {error}") from error
        return AgentMessageDeliveryReceipt(
            to=LEAD_ID, name=f"The lead of session {run.session}", how="queued"
        )

    def _find_recipient_session(self, name: str, sender: AgentIdentity) -> RunHandle:
        if name and sender.session.startswith(name):
            raise AgentRequestRefused("That is your own session: write to `lead` to reach its lead.")
        live = [run for run in list_all_live_runs(self._home) if run.session != sender.session]
        found = [run for run in live if name and run.session.startswith(name)]
        if len(found) == 1:
            return found[0]
        reason = (
            f"{len(found)} live sessions start with {name!r}" if found else f"no live session is {name!r}"
        )
        listed = ", ".join(run.session for run in live[:_MAX_LISTED]) or "no other"
        raise AgentRequestRefused(f"The message was not sent: {reason}. Live now: {listed}.")
