"""Boards and mailboxes under any sequence of calls, against models too simple to be wrong."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from record_stores import STORES

from shoal.core.errors import TaskRefused
from shoal.core.mail import Mail
from shoal.core.record import Mailboxes, TaskBoard
from shoal.core.tasks import ATTEMPT, Change, Claim, Draft

T = TypeVar("T")
AGENTS = st.sampled_from(["ann", "bob", "cid"])
DOORS = st.integers(0, 1)
QUIET = settings(max_examples=15, stateful_step_count=30, suppress_health_check=list(HealthCheck))


class OnStore(RuleBasedStateMachine):
    """Two doors to one store, open as long as the machine runs, and a loop to call them on."""

    kind: str
    port: str
    doors: list[Any]

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        open_door = getattr(STORES[self.kind](self.home), self.port)
        self.doors = [self.run(self.stack.enter_async_context(open_door())) for _ in range(2)]

    def run(self, call: Awaitable[T]) -> T:
        return self.runner.run(_bounded(call))

    def teardown(self):
        self.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.home)


async def _bounded(call: Awaitable[T]) -> T:
    async with asyncio.timeout(20):
        return await call


class ModelTask:
    owner: str | None
    attempt: str | None
    metadata: dict[str, int | None]
    blocked_by: list[str]

    def __init__(self, subject: str):
        self.subject, self.status, self.owner, self.attempt = subject, "pending", None, None
        self.metadata, self.blocked_by = {}, []


class BoardMachine(OnStore):
    port = "board"
    doors: list[TaskBoard]
    tasks = Bundle("tasks")
    attempts = Bundle("attempts")

    def __init__(self):
        super().__init__()
        self.model: dict[str, ModelTask] = {}
        self.made = 0

    def waits_for(self, start: str):
        """All that `start` waits for, however far away."""
        found: set[str] = set()
        ends = [start]
        while ends:
            ends = [up for end in ends for up in self.model[end].blocked_by if up not in found]
            found.update(ends)
        return found

    def is_blocked(self, task: str):
        return any(self.model[up].status != "completed" for up in self.model[task].blocked_by)

    def claimable(self):
        free = (ident for ident, task in self.model.items() if (task.status, task.owner) == ("pending", None))
        return sorted((ident for ident in free if not self.is_blocked(ident)), key=int)

    def update(self, door: int, task: str, *, by="ann", **fields):
        """Whether the board took the change."""
        try:
            self.run(self.doors[door].update(task, Change(**fields), by=by))
        except TaskRefused:
            return False
        return True

    @rule(target=tasks, door=DOORS, subject=st.text(max_size=5))
    def create(self, door: int, subject: str):
        task = self.run(self.doors[door].create(Draft(subject=subject, description="")))
        self.made += 1
        assert task.id == str(self.made)
        self.model[task.id] = ModelTask(subject)
        return task.id

    @rule(door=DOORS, task=tasks, subject=st.text(max_size=5))
    def rename(self, door: int, task: str, subject: str):
        assert self.update(door, task, subject=subject) == (task in self.model)
        if task in self.model:
            self.model[task].subject = subject

    @rule(door=DOORS, task=tasks, key=st.sampled_from("ab"), value=st.none() | st.integers(0, 3))
    def annotate(self, door: int, task: str, key: str, value):
        assert self.update(door, task, metadata={key: value}) == (task in self.model)
        if task in self.model:
            self.model[task].metadata[key] = value

    @rule(
        door=DOORS,
        task=tasks,
        status=st.sampled_from(["pending", "in_progress", "completed"]),
        attempt=st.none() | attempts,
    )
    def move(self, door: int, task: str, status: str, attempt: str | None):
        there = self.model.get(task)
        legal = (
            there is not None
            and attempt in (None, there.attempt)
            and (there.status, status) != ("completed", "in_progress")
        )
        assert self.update(door, task, status=status, attempt=attempt) == legal
        if legal:
            if status == "pending" and there.status != "pending":
                there.owner = None
            if status == "pending":
                there.attempt = None
            there.status = status

    @rule(door=DOORS, task=tasks, owner=st.none() | AGENTS)
    def assign(self, door: int, task: str, owner: str):
        assert self.update(door, task, owner=owner) == (task in self.model)
        if task in self.model and self.model[task].owner != owner:
            self.model[task].owner, self.model[task].attempt = owner, None

    @rule(door=DOORS, blocker=tasks, blocked=tasks, from_below=st.booleans())
    def depend(self, door: int, blocker: str, blocked: str, from_below: bool):
        legal = (
            blocker in self.model
            and blocked in self.model
            and blocker != blocked
            and blocked not in self.waits_for(blocker)
        )
        if from_below:
            taken = self.update(door, blocked, add_blocked_by=(blocker,))
        else:
            taken = self.update(door, blocker, add_blocks=(blocked,))
        assert taken == legal
        if legal and blocker not in self.model[blocked].blocked_by:
            self.model[blocked].blocked_by.append(blocker)

    def claimed(self, claim: Claim, agent: str) -> str | None:
        task = self.model[claim.task.id]
        task.status, task.owner, task.attempt = "in_progress", agent, claim.attempt
        return claim.attempt

    @rule(target=attempts, door=DOORS, task=tasks, agent=AGENTS)
    def claim(self, door: int, task: str, agent: str):
        claim = self.run(self.doors[door].claim(task, by=agent))
        there = self.model.get(task)
        if there is None:
            wanted = "task_not_found"
        elif there.owner not in (None, agent):
            wanted = "already_claimed"
        elif there.status == "completed":
            wanted = "already_resolved"
        else:
            wanted = "blocked" if self.is_blocked(task) else None
        assert (claim.success, claim.reason) == (wanted is None, wanted)
        return self.claimed(claim, agent) if claim.success else "no attempt"

    @rule(target=attempts, door=DOORS, agent=AGENTS)
    def claim_next(self, door: int, agent: str):
        free = self.claimable()
        claim = self.run(self.doors[door].claim_next(by=agent))
        assert (claim.task.id if claim else None) == (free[0] if free else None)
        return self.claimed(claim, agent) if claim else "no attempt"

    def given_back(self, task: str):
        self.model[task].status, self.model[task].owner, self.model[task].attempt = "pending", None, None

    @rule(door=DOORS, task=tasks, attempt=attempts)
    def release(self, door: int, task: str, attempt: str):
        there = self.model.get(task)
        legal = there is not None and there.attempt == attempt and there.status != "completed"
        assert self.run(self.doors[door].release(task, attempt=attempt)) == legal
        if legal:
            self.given_back(task)

    @rule(door=DOORS, agent=AGENTS)
    def release_all(self, door: int, agent: str):
        theirs = [
            ident for ident, task in self.model.items() if task.owner == agent and task.status != "completed"
        ]
        assert self.run(self.doors[door].release_all(agent)) == tuple(theirs)
        for task in theirs:
            self.given_back(task)

    @rule(door=DOORS, task=tasks)
    def delete(self, door: int, task: str):
        assert self.update(door, task, status="deleted") == (task in self.model)
        self.model.pop(task, None)
        for other in self.model.values():
            if task in other.blocked_by:
                other.blocked_by.remove(task)

    @invariant()
    def both_doors_show_the_board_as_it_is(self):
        wanted = [
            (
                ident,
                task.subject,
                task.status,
                task.owner,
                task.attempt,
                {key: value for key, value in task.metadata.items() if value is not None},
                task.blocked_by,
                {other for other, below in self.model.items() if ident in below.blocked_by},
            )
            for ident, task in self.model.items()
        ]
        for door in self.doors:
            assert [
                (
                    task.id,
                    task.subject,
                    task.status,
                    task.owner,
                    task.attempt,
                    {key: value for key, value in task.metadata.items() if key != ATTEMPT},
                    list(task.blocked_by),
                    set(task.blocks),
                )
                for task in self.run(door.list())
            ] == wanted


class MailboxMachine(OnStore):
    port = "mailboxes"
    doors: list[Mailboxes]

    @initialize(foreign=st.booleans())
    def begin(self, foreign: bool):
        self.model: dict[str, dict[str, bool]] = {"ann": {}, "bob": {}, "cid": {}}
        """Of each owner all mail ever, in order, and whether it was consumed."""
        self.posted = 0
        for owner in self.model:
            self.run(self.doors[0].open(owner, foreign=foreign))

    def unread(self, owner: str):
        return [ident for ident, read in self.model[owner].items() if not read]

    @rule(door=DOORS, to=AGENTS, count=st.sampled_from([1, 1, 1, 2, 40]))
    def post(self, door: int, to: str, count: int):
        for _ in range(count):
            self.posted += 1
            mail = Mail(id=f"m{self.posted}", sender="dan", text=f"{self.posted}", timestamp="2026")
            assert self.run(self.doors[door].post(to, mail)).id == mail.id
            self.model[to][mail.id] = False

    @rule(door=DOORS, owner=AGENTS, limit=st.integers(1, 64))
    def take(self, door: int, owner: str, limit: int):
        """Never out of order, never nothing where something is; how much at once is the store's to say."""
        taken = self.run(self.doors[door].take(owner, limit=limit))
        unread = self.unread(owner)
        assert [mail.id for mail in taken] == unread[: len(taken)]
        assert bool(taken) == bool(unread)
        assert len(taken) <= limit
        assert all(mail.text == mail.id[1:] and not mail.read for mail in taken)

    @rule(door=DOORS, owner=AGENTS, data=st.data())
    def mark_some(self, door: int, owner: str, data: st.DataObject):
        there = [mail.id for mail in self.run(self.doors[door].take(owner))]
        chosen = data.draw(st.sets(st.sampled_from([*there, "never posted"])))
        self.run(self.doors[door].mark(owner, chosen))
        self.model[owner].update(dict.fromkeys(chosen & set(there), True))

    @rule(door=DOORS, owner=AGENTS)
    def take_and_mark_all(self, door: int, owner: str):
        while taken := self.run(self.doors[door].take(owner)):
            ids = [mail.id for mail in taken]
            assert ids == self.unread(owner)[: len(ids)]
            self.run(self.doors[door].mark(owner, ids))
            self.model[owner].update(dict.fromkeys(ids, True))
        assert self.unread(owner) == []

    @rule(owner=AGENTS)
    def wait(self, owner: str):
        if self.unread(owner):
            self.run(self.doors[1].wait(owner))

    @rule(door=DOORS, owner=AGENTS)
    def remember(self, door: int, owner: str):
        history = self.run(self.doors[door].history(owner))
        assert {mail.id: mail.read for mail in history} == self.model[owner]
        assert len(history) == len(self.model[owner])
        assert [mail.id for mail in history if not mail.read] == self.unread(owner)


def machine(base, store):
    case = type(f"{base.__name__}On{store.title()}", (base,), {"kind": store}).TestCase
    case.settings = QUIET
    return case


TestBoardInMemory = machine(BoardMachine, "memory")
TestBoardOnFiles = machine(BoardMachine, "files")
TestMailboxesInMemory = machine(MailboxMachine, "memory")
TestMailboxesOnFiles = machine(MailboxMachine, "files")
