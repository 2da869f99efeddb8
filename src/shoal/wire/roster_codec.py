"""Codec between a team and its `config.json`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.core.agents.subagents import ResourceRequest
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.teams.roster import RosterEntry, TeamRoster, format_agent_id
from shoal.wire.foreign_json import (
    InvalidFileContent,
    RejectedFileEntry,
    convert_to_schema,
    describe_validation_error,
    encode_json_exactly,
    encode_json_object,
    indent_json,
    parse_foreign_json,
    parse_raw_json_fields,
    update_json_fields,
)

_OWN_MEMBERS_HEADER = "# members that Shoal added:"
_MEMBERS_MARKER = Raw(b"[0]")
DOWN_STATE = "down"
"""`shoal.state` of a member that failed unexpectedly and has not been started again."""


class _OwnMemberFieldsSchema(Struct):
    """Fields that only Shoal uses; other programs keep them."""

    state: str | None = None
    resources: ResourceRequest | None = None


class _RosterMemberSchema(Struct, rename="camel"):
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
    shoal: _OwnMemberFieldsSchema | None = None


class _RosterFileSchema(Struct, rename="camel"):
    """The late 2026 format has no description, and a `leadProcess` that is kept as an unknown field."""

    members: list[Any]
    name: Any = None
    description: str | None = None
    created_at: int | float | None = None
    lead_agent_id: str | None = None
    lead_session_id: str | None = None


class _RosterWithValidMembersSchema(_RosterFileSchema):
    """Team file in which every member is valid."""

    members: list[_RosterMemberSchema]


class _RosterEntryNameSchema(Struct):
    name: str


@cache
def _get_decoders() -> tuple[
    msgspec.json.Decoder[_RosterWithValidMembersSchema], msgspec.json.Decoder[_RosterEntryNameSchema]
]:
    """Return the decoders of a whole team file and of a member's name; most sessions read no team."""
    return msgspec.json.Decoder(_RosterWithValidMembersSchema), msgspec.json.Decoder(_RosterEntryNameSchema)


class _RosterFileParts(Struct, frozen=True, kw_only=True):
    fields: Mapping[str, Any]
    """Values or raw JSON of all fields in their order, with a marker for the members."""
    entries: Mapping[Any, bytes]
    """Members by name, encoded and indented if possible."""


class ParsedTeamRosterFile(Struct, frozen=True, kw_only=True):
    """A team and the bytes it was read from, which include fields of other programs."""

    team: TeamRoster
    content: bytes
    rejected: tuple[RejectedFileEntry, ...] = ()
    """Invalid entries in the member list; a rewrite keeps them."""
    parts: _RosterFileParts | None = None
    """Encoded parts of the file, if already known."""

    def encode_changed_roster(self, team: TeamRoster) -> bytes:
        return self.replace_roster(team).content

    def replace_roster(self, team: TeamRoster) -> ParsedTeamRosterFile:
        """Return the file with the new team; unknown fields of the team and of its members stay."""
        old_parts = self.parts or _split_roster_file(self.content)
        # Most members are unchanged, so their bytes are reused: a team may have a thousand.
        old_entries, old_members = old_parts.entries, self.team.members
        is_appended = self.parts is not None and team.members[: len(old_members)] == old_members
        entries = dict(old_entries) if is_appended else {}
        unchanged = frozenset() if is_appended else frozenset(map(id, old_members))
        for member in team.members[len(old_members) :] if is_appended else team.members:
            old_entry = old_entries.get(member.name)
            entries[member.name] = (
                old_entry
                if old_entry is not None and id(member) in unchanged
                else _indent_entry(_encode_roster_member(member, old_entry))
            )
        fields = dict(old_parts.fields)
        new_fields = _build_roster_json_fields(team)
        if "name" in fields:
            # The directory name is the team name; the file may spell it differently.
            del new_fields["name"]
        fields.update(new_fields)
        fields = {name: value for name, value in fields.items() if value is not None}
        content = _encode_roster_file(
            fields, [*entries.values(), *(_indent_entry(rejected.raw) for rejected in self.rejected)]
        )
        return ParsedTeamRosterFile(
            team=team,
            content=content,
            rejected=self.rejected,
            parts=_RosterFileParts(fields=fields, entries=entries),
        )

    def append_entries(self, entries: Sequence[bytes]) -> bytes:
        """Return the content with more members, encoded by `encode_roster_entry`."""
        if not entries:
            return self.content
        parts = self.parts or _split_roster_file(self.content)
        rejected = [_indent_entry(each.raw) for each in self.rejected]
        return _encode_roster_file(parts.fields, [*parts.entries.values(), *entries, *rejected])


def encode_roster_entry(member: RosterEntry, old_entry: bytes | None = None) -> bytes:
    """Encode one member as in the file of its team; unknown fields of the old entry stay."""
    return _indent_entry(_encode_roster_member(member, old_entry))


def parse_roster_entry(entry: bytes, team: TeamName) -> RosterEntry:
    """Parse a member that `encode_roster_entry` encoded."""
    try:
        schema = msgspec.json.decode(entry, type=_RosterMemberSchema)
    except msgspec.DecodeError:  # half a surrogate pair in a prompt
        schema = convert_to_schema(parse_foreign_json(entry), _RosterMemberSchema)
    return _build_roster_entry(schema, team)


def _split_roster_file(content: bytes) -> _RosterFileParts:
    fields = parse_raw_json_fields(content)
    entries = {
        _parse_member_entry_name(entry): _indent_entry(entry)
        for entry in _split_member_entries(fields.get("members"))
    }
    # Copied: each raw value would keep the whole content in memory.
    copied = {name: Raw(bytes(value)) for name, value in fields.items()}
    return _RosterFileParts(fields={**copied, "members": _MEMBERS_MARKER}, entries=entries)


def _encode_roster_file(fields: Mapping[str, Any], entries: list[bytes]) -> bytes:
    """Encode and indent the file. Entries are indented already: formatting all of them again for each new
    member would take most of the time in which a large team starts."""
    content = indent_json(encode_json_object(fields))
    before, found, after = content.partition(b'\n  "members": [\n    0\n  ]')
    if not found:
        return indent_json(encode_json_object({**fields, "members": Raw(b"[%b]" % b",".join(entries))}))
    members = b"[\n    %b\n  ]" % b",\n    ".join(entries) if entries else b"[]"
    return b'%b\n  "members": %b%b' % (before, members, after)


def _indent_entry(entry: bytes) -> bytes:
    """Indent a member as in its file; an entry that cannot be formatted stays as it is."""
    try:
        # A line break inside a string is not valid JSON, but some programs write it.
        if b"\n" in msgspec.json.format(entry, indent=-1):
            return entry
        return msgspec.json.format(entry, indent=2).replace(b"\n", b"\n    ")
    except (msgspec.DecodeError, RecursionError):
        return entry


def encode_new_team_roster(team: TeamRoster) -> bytes:
    """Return the file content for a new team."""
    return indent_json(
        update_json_fields(
            b"{}",
            {
                **_build_roster_json_fields(team),
                "members": Raw(
                    b"[%b]" % b",".join([_encode_roster_member(member, None) for member in team.members])
                ),
            },
        )
    )


def parse_team_roster(
    content: bytes, name: TeamName, *, is_foreign: bool = False
) -> ParsedTeamRosterFile | InvalidFileContent:
    """Parse the team in the directory of that name; invalid members are rejected with the reason.

    With `is_foreign`, fields of an unexpected type are ignored: another program may use the field otherwise.
    """
    schema: _RosterFileSchema
    try:
        schema = _get_decoders()[0].decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_foreign_json(content)
        if isinstance(value, InvalidFileContent):
            return value
        if is_foreign:
            value = _drop_mistyped_fields(value, _RosterFileSchema)
        try:
            schema = convert_to_schema(value, _RosterFileSchema)
        except msgspec.ValidationError as error:
            return InvalidFileContent(describe_validation_error(error))
    members: dict[str, RosterEntry] = {}
    rejected: list[RejectedFileEntry] = []
    for entry in schema.members:
        try:
            member_schema = (
                entry
                if isinstance(entry, _RosterMemberSchema)
                else convert_to_schema(
                    _drop_mistyped_fields(entry, _RosterMemberSchema) if is_foreign else entry,
                    _RosterMemberSchema,
                )
            )
            member = _build_roster_entry(member_schema, name)
        except msgspec.ValidationError as error:
            rejected.append(
                RejectedFileEntry(raw=encode_json_exactly(entry), reason=describe_validation_error(error))
            )
        else:
            # A member may be written twice, the second time complete: the last one wins.
            members[member.name] = member
    team = TeamRoster(
        name=name,
        description=schema.description,
        created_at=_to_time_or_zero(schema.created_at),
        lead_agent_id=schema.lead_agent_id or format_agent_id(LEAD_NAME, name),
        lead_session_id=schema.lead_session_id or "",
        members=tuple(members.values()),
        given_name=schema.name if isinstance(schema.name, str) and schema.name != name else "",
    )
    return ParsedTeamRosterFile(team=team, content=content, rejected=tuple(rejected))


def _drop_mistyped_fields(value: Any, schema: type[Struct]) -> Any:
    """Return the object without the optional fields whose type is wrong."""
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for field in msgspec.structs.fields(schema):
        if field.encode_name in kept and not field.required:
            try:
                msgspec.convert(kept[field.encode_name], field.type)
            except (msgspec.ValidationError, UnicodeEncodeError):
                del kept[field.encode_name]
    return kept


def _build_roster_entry(schema: _RosterMemberSchema, team: TeamName) -> RosterEntry:
    return RosterEntry(
        agent_id=schema.agent_id or format_agent_id(AgentName(schema.name), team),
        name=AgentName(schema.name),
        agent_type=_intern(schema.agent_type) or "",
        model=_intern(schema.model) or "",
        joined_at=_to_time_or_zero(schema.joined_at),
        cwd=_intern(schema.cwd) or "",
        tmux_pane_id=_intern(schema.tmux_pane_id) or "",
        subscriptions=tuple(schema.subscriptions or ()),
        prompt=schema.prompt,
        color=_intern(schema.color),
        plan_mode_required=schema.plan_mode_required,
        backend_type=_intern(schema.backend_type),
        is_active=schema.is_active,
        is_down=schema.shoal is not None and schema.shoal.state == DOWN_STATE,
        resources=None if schema.shoal is None else schema.shoal.resources,
    )


def _intern(text: str | None) -> str | None:
    """Return the same string for equal ones: most members of a large team have the same values."""
    return None if text is None else sys.intern(text)


def _to_time_or_zero(number: float | None) -> int:
    """Return 0 for an invalid time: nothing depends on it."""
    try:
        return int(number or 0)
    except (OverflowError, ValueError):
        return 0


def _build_roster_json_fields(team: TeamRoster) -> dict[str, Any]:
    return {
        "name": team.name,
        "description": team.description,
        "createdAt": team.created_at,
        "leadAgentId": team.lead_agent_id,
        "leadSessionId": team.lead_session_id,
    }


def _encode_roster_member(member: RosterEntry, old_entry: bytes | None) -> bytes:
    fields = {
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
        "shoal": _build_own_member_fields(member),
    }
    return update_json_fields(old_entry or b"{}", fields)


def _build_own_member_fields(member: RosterEntry) -> dict[str, Any] | None:
    fields: dict[str, Any] = {}
    if member.is_down:
        fields["state"] = DOWN_STATE
    if member.resources is not None:
        fields["resources"] = member.resources
    return fields or None


def _split_member_entries(members: Any) -> list[bytes]:
    """Return the encoded members in any readable format of the file."""
    try:
        return [bytes(raw) for raw in msgspec.json.decode(members or b"[]", type=list[Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_foreign_json(bytes(members))
        return [encode_json_exactly(entry) for entry in value] if isinstance(value, list) else []


def _parse_member_entry_name(entry: bytes) -> Any:
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _get_decoders()[1].decode(entry).name
    value = parse_foreign_json(entry)
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None


def encode_own_member_list(names: Sequence[str]) -> bytes:
    """Encode the members that Shoal added, with their number, which shows later whether any is missing."""
    return "\n".join((f"{_OWN_MEMBERS_HEADER} {len(names)}", *names, "")).encode()


def parse_own_member_list(content: bytes) -> list[str] | None:
    """Return the members that Shoal added; None if the list is empty or damaged."""
    try:
        header, *names, rest = content.decode().split("\n")
    except ValueError:
        return None  # not UTF-8, or not a single complete line
    return names if header == f"{_OWN_MEMBERS_HEADER} {len(names)}" and not rest else None
