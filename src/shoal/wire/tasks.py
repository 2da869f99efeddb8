"""Codec between tasks and their JSON files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from shoal.core.errors import BadName
from shoal.core.names import AgentName, TaskId, task_id
from shoal.core.tasks import Status, Task
from shoal.wire.foreign import Invalid, converted, rewritten, shape, value_of


class _Form(Struct, rename="camel"):
    id: str
    subject: str
    status: Status | Literal["deleted"]
    description: str | None = None
    active_form: str | None = None
    owner: str | None = None
    blocks: list[str] | None = None
    blocked_by: list[str] | None = None
    metadata: dict[str, Any] | UnsetType | None = UNSET


_decode = msgspec.json.Decoder(_Form).decode


class TaskFile(Struct, frozen=True, kw_only=True):
    """A task and the bytes it was read from, which include fields of other programs."""

    task: Task
    content: bytes

    def rewritten(self, task: Task) -> bytes:
        """Encode the file with the new task; unknown fields keep their value and position."""
        known = _known(task)
        if task.metadata == self.task.metadata:
            # Left unchanged: an explicit empty mapping stays, and so does the spelling of numbers.
            del known["metadata"]
        return rewritten(self.content, known)


def task_bytes(task: Task) -> bytes:
    """Return the file content for a new task."""
    return rewritten(b"{}", _known(task))


def read_task(content: bytes, expected: TaskId | None = None) -> TaskFile | Invalid | None:
    """Parse the task; return None if it is stored as deleted. `expected` is the id from the file name."""
    form = _form(content)
    if isinstance(form, Invalid):
        return form
    if expected is not None and form.id != expected:
        return Invalid(f"it holds task {form.id[:80]!r}, not {expected!r}")
    if form.status == "deleted":
        return None
    try:
        own = task_id(form.id)
    except BadName as error:
        return Invalid(str(error))
    task = Task(
        id=own,
        subject=form.subject,
        description=form.description or "",
        active_form=form.active_form or "",
        status=form.status,
        owner=AgentName(form.owner) if form.owner else None,
        blocks=_references(form.blocks),
        blocked_by=_references(form.blocked_by),
        metadata=form.metadata or {},
    )
    return TaskFile(task=task, content=content)


def _form(content: bytes) -> _Form | Invalid:
    try:
        return _decode(content)
    except msgspec.ValidationError as error:
        return Invalid(shape(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(content)
    if isinstance(value, Invalid):
        return value
    try:
        return converted(value, _Form)
    except msgspec.ValidationError as error:
        return Invalid(shape(error))


def _references(ids: list[str] | None) -> tuple[TaskId, ...]:
    """Return each id once. Invalid ids are dropped: they must not become paths."""
    known: dict[TaskId, None] = {}
    for text in ids or ():
        try:
            known[task_id(text)] = None
        except BadName:
            continue
    return tuple(known)


def _known(task: Task) -> dict[str, Any]:
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
