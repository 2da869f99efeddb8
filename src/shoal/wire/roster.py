"""Codec between a team and its `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.roster import Member, Team, agent_id
from shoal.wire.foreign import (
    Invalid,
    Rejected,
    converted,
    exact,
    fields_of,
    for_people,
    rewritten,
    shape,
    value_of,
)


class _MemberForm(Struct, rename="camel"):
    name: str
    agent_id: str | None = None
    agent_type: str | None = None
    model: str | None = None
    joined_at: int | float | None = None
    cwd: str | None = None
    tmux_pane_id: str | None = None
    subscriptions: list[str] | None = None
    prompt: str | None = None
    color: str | None = None
    plan_mode_required: bool | None = None
    backend_type: str | None = None
    is_active: bool | None = None


class _TeamForm(Struct, rename="camel"):
    """The late 2026 format has no description, and a `leadProcess` that is kept as an unknown field."""

    members: list[Any]
    description: str | None = None
    created_at: int | float | None = None
    lead_agent_id: str | None = None
    lead_session_id: str | None = None


class _WholeForm(_TeamForm):
    """Team file in which every member is valid."""

    members: list[_MemberForm]


class _Named(Struct):
    name: str


_decode_whole = msgspec.json.Decoder(_WholeForm).decode
_decode_named = msgspec.json.Decoder(_Named).decode


class TeamFile(Struct, frozen=True, kw_only=True):
    """A team and the bytes it was read from, which include fields of other programs."""

    team: Team
    content: bytes
    rejected: tuple[Rejected, ...] = ()
    """Invalid entries in the member list; a rewrite keeps them."""
    entries: Mapping[Any, bytes] | None = None
    """Encoded members by name, if already known."""

    def rewritten(self, team: Team) -> bytes:
        return self.changed(team).content

    def changed(self, team: Team) -> TeamFile:
        """Return the file with the new team; unknown fields of the team and of its members stay."""
        fields = fields_of(self.content)
        before = self.entries
        if before is None:
            before = {_name_in(entry): entry for entry in _entries(fields.get("members"))}
        # Most members are unchanged, so their bytes are reused: a team may have a thousand.
        unchanged = {id(member) for member in self.team.members}
        entries = {
            member.name: before[member.name]
            if id(member) in unchanged and member.name in before
            else _member_bytes(member, before.get(member.name))
            for member in team.members
        }
        known = _known(team, [*entries.values(), *(rejected.raw for rejected in self.rejected)])
        if "name" in fields:
            # The directory name is the team name; the file may spell it differently.
            del known["name"]
        content = for_people(rewritten(self.content, known))
        return TeamFile(team=team, content=content, rejected=self.rejected, entries=entries)


def team_bytes(team: Team) -> bytes:
    """Return the file content for a new team."""
    return for_people(
        rewritten(b"{}", _known(team, [_member_bytes(member, None) for member in team.members]))
    )


def read_team(content: bytes, name: TeamName) -> TeamFile | Invalid:
    """Parse the team in the directory of that name; invalid members are rejected with the reason."""
    form: _TeamForm
    try:
        form = _decode_whole(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(content)
        if isinstance(value, Invalid):
            return value
        try:
            form = converted(value, _TeamForm)
        except msgspec.ValidationError as error:
            return Invalid(shape(error))
    members: dict[str, Member] = {}
    rejected: list[Rejected] = []
    for entry in form.members:
        try:
            known = entry if isinstance(entry, _MemberForm) else converted(entry, _MemberForm)
            member = _member(known, name)
        except msgspec.ValidationError as error:
            rejected.append(Rejected(raw=exact(entry), reason=shape(error)))
        else:
            # A member may be written twice, the second time complete: the last one wins.
            members[member.name] = member
    team = Team(
        name=name,
        description=form.description,
        created_at=_whole(form.created_at),
        lead_agent_id=form.lead_agent_id or agent_id(LEAD_NAME, name),
        lead_session_id=form.lead_session_id or "",
        members=tuple(members.values()),
    )
    return TeamFile(team=team, content=content, rejected=tuple(rejected))


def _member(form: _MemberForm, team: TeamName) -> Member:
    return Member(
        agent_id=form.agent_id or agent_id(AgentName(form.name), team),
        name=AgentName(form.name),
        agent_type=form.agent_type or "",
        model=form.model or "",
        joined_at=_whole(form.joined_at),
        cwd=form.cwd or "",
        tmux_pane_id=form.tmux_pane_id or "",
        subscriptions=tuple(form.subscriptions or ()),
        prompt=form.prompt,
        color=form.color,
        plan_mode_required=form.plan_mode_required,
        backend_type=form.backend_type,
        is_active=form.is_active,
    )


def _whole(number: float | None) -> int:
    """Return 0 for an invalid time: nothing depends on it."""
    try:
        return int(number or 0)
    except (OverflowError, ValueError):
        return 0


def _known(team: Team, members: list[bytes]) -> dict[str, Any]:
    return {
        "name": team.name,
        "description": team.description,
        "createdAt": team.created_at,
        "leadAgentId": team.lead_agent_id,
        "leadSessionId": team.lead_session_id,
        "members": Raw(b"[%b]" % b",".join(members)),
    }


def _member_bytes(member: Member, before: bytes | None) -> bytes:
    known = {
        "agentId": member.agent_id,
        "name": member.name,
        "agentType": member.agent_type,
        "model": member.model,
        "prompt": member.prompt,
        "color": member.color,
        "planModeRequired": member.plan_mode_required,
        "joinedAt": member.joined_at,
        "tmuxPaneId": member.tmux_pane_id,
        "cwd": member.cwd,
        "subscriptions": member.subscriptions,
        "backendType": member.backend_type,
        "isActive": member.is_active,
    }
    return rewritten(before or b"{}", known)


def _entries(members: Any) -> list[bytes]:
    """Return the encoded members, whichever way the file could be read."""
    try:
        return [bytes(raw) for raw in msgspec.json.decode(members or b"[]", type=list[Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(bytes(members))
        return [exact(entry) for entry in value] if isinstance(value, list) else []


def _name_in(entry: bytes) -> Any:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _decode_named(entry).name
    value = value_of(entry)
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None
