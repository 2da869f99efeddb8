"""Codec between tasks and their JSON files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from shoal.core.errors import InvalidName
from shoal.core.names import AgentName, TaskId, parse_task_id
from shoal.core.teams.tasks import Task, TaskStatus
from shoal.wire.foreign_json import (
    InvalidFileContent,
    convert_to_schema,
    describe_validation_error,
    parse_foreign_json,
    update_json_fields,
)


class _TaskSchema(Struct, rename="camel"):
    id: str
    subject: str
    status: TaskStatus | Literal["deleted"]
    description: str | None = None
    active_form: str | None = None
    owner: str | None = None
    blocks: list[str] | None = None
    blocked_by: list[str] | None = None
    metadata: dict[str, Any] | UnsetType | None = UNSET


_decode = msgspec.json.Decoder(_TaskSchema).decode


class ParsedTaskFile(Struct, frozen=True, kw_only=True):
    """A task and the bytes it was read from, which include fields of other programs."""

    task: Task
    content: bytes

    def encode_task(self, task: Task) -> bytes:
        """Encode the file with the new task; unknown fields keep their value and position."""
        fields = _build_task_json_fields(task)
        if task.metadata == self.task.metadata:
            # Left unchanged: an explicit empty mapping stays, and so does the spelling of numbers.
            del fields["metadata"]
        return update_json_fields(self.content, fields)


def encode_new_task(task: Task) -> bytes:
    """Return the file content for a new task."""
    return update_json_fields(b"{}", _build_task_json_fields(task))


def parse_task(content: bytes, expected: TaskId | None = None) -> ParsedTaskFile | InvalidFileContent | None:
    """Parse the task; return None if it is stored as deleted. `expected` is the id from the file name."""
    schema = _parse_task_schema(content)
    if isinstance(schema, InvalidFileContent):
        return schema
    if expected is not None and schema.id != expected:
        return InvalidFileContent(f"it contains task {schema.id[:80]!r} instead of {expected!r}")
    if schema.status == "deleted":
        return None
    try:
        task_id = parse_task_id(schema.id)
    except InvalidName as error:
        return InvalidFileContent(str(error))
    task = Task(
        id=task_id,
        subject=schema.subject,
        description=schema.description or "",
        active_form=schema.active_form or "",
        status=schema.status,
        owner=AgentName(schema.owner) if schema.owner else None,
        blocks=_parse_task_references(schema.blocks),
        blocked_by=_parse_task_references(schema.blocked_by),
        metadata=schema.metadata or {},
    )
    return ParsedTaskFile(task=task, content=content)


def _parse_task_schema(content: bytes) -> _TaskSchema | InvalidFileContent:
    try:
        return _decode(content)
    except msgspec.ValidationError as error:
        return InvalidFileContent(describe_validation_error(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_foreign_json(content)
    if isinstance(value, InvalidFileContent):
        return value
    try:
        return convert_to_schema(value, _TaskSchema)
    except msgspec.ValidationError as error:
        return InvalidFileContent(describe_validation_error(error))


def _parse_task_references(ids: list[str] | None) -> tuple[TaskId, ...]:
    """Return each id once. Invalid ids are dropped: they must not become paths."""
    references: dict[TaskId, None] = {}
    for text in ids or ():
        try:
            references[parse_task_id(text)] = None
        except InvalidName:
            continue
    return tuple(references)


def _build_task_json_fields(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "activeForm": task.active_form,
        "status": task.status,
        "owner": task.owner,
        "blocks": task.blocks,
        "blockedBy": task.blocked_by,
        "metadata": task.metadata or None,
    }
