"""Admits members to a team: newly spawned, or resumed from an earlier process."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

from msgspec import Struct

from shoal.core.agents.subagents import SpawnRequest
from shoal.core.budgets.limits import AgentSlot
from shoal.core.errors import AgentRequestRefused, ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.team_operations import TeammateSpawnResult
from shoal.core.teams.team_storage import TaskBoard
from shoal.runs.prepared_agent import PreparedAgent
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.members.local_member import LocalMember
from shoal.team.members.member_recovery import continue_resumed_member
from shoal.team.members.member_registrar import MemberRegistrar
from shoal.team.members.member_results import LostMember
from shoal.team.members.remote_member import RemoteMember
from shoal.team.team_services import TeamServices


class AdmittedMember(Struct, frozen=True, kw_only=True):
    """A member that is in the roster and has not started."""

    member: LocalMember | RemoteMember
    entry: RosterEntry
    slot: AgentSlot
    prompt: str = ""
    """First prompt."""
    delivered: Container[str] = ()
    """Ids of the items that its transcript already contains."""

    @property
    def spawned_teammate(self) -> TeammateSpawnResult:
        member = self.member
        return TeammateSpawnResult(
            teammate=member.id,
            name=self.entry.name,
            team=self.entry.team,
            color=self.entry.color,
            resolved=member.ready.resolved if isinstance(member, RemoteMember) else member.prepared.resolved,
        )


class MemberAdmissionTeamInterface(Protocol):
    """Parts of the team that admission needs."""

    def create_question_broker(self, name: AgentName) -> MailQuestionBroker: ...

    def create_local_member(self, prepared: PreparedAgent, slot: AgentSlot) -> LocalMember: ...

    def attach_remote_member(self, member: RemoteMember, slot: AgentSlot) -> RemoteMember: ...

    def set_roster_activity(self, name: AgentName, *, active: bool) -> None: ...


class MemberAdmission:
    def __init__(
        self,
        services: TeamServices,
        registrar: MemberRegistrar,
        board: TaskBoard,
        host: MemberAdmissionTeamInterface,
    ) -> None:
        self._services = services
        self._registrar = registrar
        self._board = board
        self._host = host

    async def admit_members(self, requests: Sequence[SpawnRequest], call: str) -> list[AdmittedMember]:
        """Admit all and post their prompts once all have joined. If one fails, all are undone."""
        admitted: list[AdmittedMember] = []
        try:
            for request in requests:
                admitted.append(await self._admit_member(request, call))  # noqa: PERF401 - undone one by one
            for member in admitted:
                await self._registrar.post_first_prompt(member.entry, member.prompt)
        except BaseException:
            for member in admitted:
                await self._undo_admission(member)
            raise
        return admitted

    async def _admit_member(self, request: SpawnRequest, call: str) -> AdmittedMember:
        kind = request.kind or self._services.default_kind
        slot = self._registrar.reserve_agent_slot(kind)
        try:
            backend = await self._services.launcher.choose_backend(kind)
            if backend == "in-process":
                prepared, entry = await self._registrar.register_member(
                    request, self._host.create_question_broker, call
                )
                return AdmittedMember(
                    member=self._host.create_local_member(prepared, slot),
                    entry=entry,
                    slot=slot,
                    prompt=request.prompt if prepared.prompt is None else prepared.prompt.text,
                    delivered=prepared.delivered,
                )
            remote_member, entry = await self._registrar.register_remote_member(request, backend, call)
            member = self._host.attach_remote_member(remote_member, slot)
            return AdmittedMember(member=member, entry=entry, slot=slot, prompt=remote_member.ready.prompt)
        except BaseException:
            self._services.budget.close_agent_slot(slot, was_started=False)
            raise

    async def _undo_admission(self, admitted: AdmittedMember) -> None:
        member, entry = admitted.member, admitted.entry
        self._services.budget.close_agent_slot(admitted.slot, was_started=False)
        try:
            await (member.stop_process() if isinstance(member, RemoteMember) else member.clean_up())
            await self._services.store.rosters.remove_member(entry.team, entry.name)
        except ShoalError as error:
            self._services.note(f"Not everything of {entry.name} could be put away: {error}")

    async def resume_member(
        self, entry: RosterEntry, claimed_tasks: tuple[TaskId, ...], lead_mail_ids: Container[str]
    ) -> AdmittedMember | LostMember:
        """Resume a member of an earlier process with its claimed tasks.

        `lead_mail_ids` are the ids of all mail of the lead.
        """
        slot: AgentSlot | None = None
        try:
            slot = self._registrar.reserve_agent_slot(entry.agent_type, is_resumed=True)
            return await self._restore_member(entry, claimed_tasks, lead_mail_ids, slot)
        except AgentRequestRefused as refusal:
            reason, leaves_roster = f"it could not be resumed and left the team: {refusal}", True
        except ShoalError as error:
            # The store cannot be read or written. That may be repaired, so nothing is discarded.
            reason, leaves_roster = f"it cannot be resumed now, but at the next start: {error}", False
        if slot is not None:
            self._services.budget.close_agent_slot(slot)
        self._services.note(f"The teammate {entry.name} is not here: {reason}")
        agent = AgentId(entry.agent_id)
        return LostMember(
            agent=agent, name=entry.name, kind=entry.agent_type, why=reason, leaves_roster=leaves_roster
        )

    async def _restore_member(
        self,
        entry: RosterEntry,
        claimed_tasks: tuple[TaskId, ...],
        lead_mail_ids: Container[str],
        slot: AgentSlot,
    ) -> AdmittedMember:
        fallback_reason = ""
        try:
            backend = await self._services.launcher.choose_backend(entry.agent_type)
            if backend != "in-process":
                remote_member = self._host.attach_remote_member(
                    await self._registrar.restore_remote_member(entry, backend), slot
                )
                return AdmittedMember(member=remote_member, entry=entry, slot=slot)
        except AgentRequestRefused as refusal:
            if self._services.launcher.is_foreign_agent_type(entry.agent_type):
                raise
            fallback_reason = str(refusal)
        prepared = await self._registrar.restore_member(entry, self._host.create_question_broker)
        if fallback_reason:
            # A missing backend loses no member: its transcript is enough to resume it here.
            self._services.note(f"{entry.name} continues in the lead's process: {fallback_reason}")
        member = self._host.create_local_member(prepared, slot)
        await continue_resumed_member(self._services, member, self._board, claimed_tasks, lead_mail_ids)
        if member.state == "idle" and entry.is_active:
            self._host.set_roster_activity(member.name, active=False)
        return AdmittedMember(member=member, entry=entry, slot=slot, delivered=prepared.delivered)
