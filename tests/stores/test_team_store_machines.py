"""Boards and mailboxes under random sequences of calls, compared with simple models."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import unicodedata
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from store_openers import STORE_OPENERS

from shoal.core.errors import TaskUpdateRefused
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import ATTEMPT_KEY, TaskClaimResult, TaskDraft, TaskUpdate
from shoal.core.teams.team_storage import MailboxStore, TaskBoard

T = TypeVar("T")
AGENTS = st.sampled_from(["ann", "bob", "cid"])
# The board refuses a subject without a visible character.
SUBJECTS = st.text(max_size=5).filter(
    lambda text: any(unicodedata.category(each)[0] in "LMNPS" for each in text)
)
STORE_INDEXES = st.integers(0, 1)
QUIET = settings(max_examples=15, stateful_step_count=30, suppress_health_check=list(HealthCheck))


class StoreMachine(RuleBasedStateMachine):
    """Two objects of one store, open while the machine runs, and a loop to call them on."""

    kind: str
    port: str
    stores: list[Any]

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        open_store = getattr(STORE_OPENERS[self.kind](self.home), self.port)
        self.stores = [self.run(self.stack.enter_async_context(open_store())) for _ in range(2)]

    def run(self, call: Awaitable[T]) -> T:
        return self.runner.run(_run_with_timeout(call))

    def teardown(self):
        self.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.home)


async def _run_with_timeout(call: Awaitable[T]) -> T:
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


class BoardMachine(StoreMachine):
    port = "board"
    stores: list[TaskBoard]
    tasks = Bundle("tasks")
    attempts = Bundle("attempts")

    def __init__(self):
        super().__init__()
        self.model: dict[str, ModelTask] = {}
        self.created = 0

    def find_all_blockers(self, start: str):
        """Return the direct and indirect blockers of `start`."""
        found: set[str] = set()
        ends = [start]
        while ends:
            ends = [up for end in ends for up in self.model[end].blocked_by if up not in found]
            found.update(ends)
        return found

    def is_blocked(self, task: str):
        return any(self.model[up].status != "completed" for up in self.model[task].blocked_by)

    def list_claimable(self):
        free = (ident for ident, task in self.model.items() if (task.status, task.owner) == ("pending", None))
        return sorted((ident for ident in free if not self.is_blocked(ident)), key=int)

    def update(self, store: int, task: str, *, by="ann", **fields):
        """Return True if the board accepts the change."""
        try:
            self.run(self.stores[store].update(task, TaskUpdate(**fields), by=by))
        except TaskUpdateRefused:
            return False
        return True

    @rule(target=tasks, store=STORE_INDEXES, subject=SUBJECTS)
    def create(self, store: int, subject: str):
        task = self.run(self.stores[store].create(TaskDraft(subject=subject, description="")))
        self.created += 1
        assert task.id == str(self.created)
        self.model[task.id] = ModelTask(subject)
        return task.id

    @rule(store=STORE_INDEXES, task=tasks, subject=SUBJECTS)
    def rename(self, store: int, task: str, subject: str):
        assert self.update(store, task, subject=subject) == (task in self.model)
        if task in self.model:
            self.model[task].subject = subject

    @rule(store=STORE_INDEXES, task=tasks, key=st.sampled_from("ab"), value=st.none() | st.integers(0, 3))
    def annotate(self, store: int, task: str, key: str, value):
        assert self.update(store, task, metadata={key: value}) == (task in self.model)
        if task in self.model:
            self.model[task].metadata[key] = value

    @rule(
        store=STORE_INDEXES,
        task=tasks,
        status=st.sampled_from(["pending", "in_progress", "completed"]),
        attempt=st.none() | attempts,
    )
    def move(self, store: int, task: str, status: str, attempt: str | None):
        task_model = self.model.get(task)
        legal = (
            task_model is not None
            and attempt in (None, task_model.attempt)
            and (task_model.status, status) != ("completed", "in_progress")
            and (status in ("pending", task_model.status) or not self.is_blocked(task))
        )
        assert self.update(store, task, status=status, attempt=attempt) == legal
        if legal:
            if status == "pending" and task_model.status != "pending":
                task_model.owner = None
            if status == "pending":
                task_model.attempt = None
            task_model.status = status

    @rule(store=STORE_INDEXES, task=tasks, owner=st.none() | AGENTS)
    def assign(self, store: int, task: str, owner: str):
        assert self.update(store, task, owner=owner) == (task in self.model)
        if task in self.model and self.model[task].owner != owner:
            self.model[task].owner, self.model[task].attempt = owner, None

    @rule(store=STORE_INDEXES, blocker=tasks, blocked=tasks, from_below=st.booleans())
    def depend(self, store: int, blocker: str, blocked: str, from_below: bool):
        legal = (
            blocker in self.model
            and blocked in self.model
            and blocker != blocked
            and blocked not in self.find_all_blockers(blocker)
        )
        if from_below:
            accepted = self.update(store, blocked, add_blocked_by=(blocker,))
        else:
            accepted = self.update(store, blocker, add_blocks=(blocked,))
        assert accepted == legal
        if legal and blocker not in self.model[blocked].blocked_by:
            self.model[blocked].blocked_by.append(blocker)

    def record_claim(self, claim: TaskClaimResult, agent: str) -> str | None:
        task = self.model[claim.task.id]
        task.status, task.owner, task.attempt = "in_progress", agent, claim.attempt
        return claim.attempt

    @rule(target=attempts, store=STORE_INDEXES, task=tasks, agent=AGENTS)
    def claim(self, store: int, task: str, agent: str):
        claim = self.run(self.stores[store].claim(task, by=agent))
        task_model = self.model.get(task)
        if task_model is None:
            wanted = "task_not_found"
        elif task_model.owner not in (None, agent):
            wanted = "already_claimed"
        elif task_model.status == "completed":
            wanted = "already_resolved"
        else:
            wanted = "blocked" if self.is_blocked(task) else None
        assert (claim.success, claim.reason) == (wanted is None, wanted)
        return self.record_claim(claim, agent) if claim.success else "no attempt"

    @rule(target=attempts, store=STORE_INDEXES, agent=AGENTS)
    def claim_next(self, store: int, agent: str):
        free = self.list_claimable()
        claim = self.run(self.stores[store].claim_next(by=agent))
        assert (claim.task.id if claim else None) == (free[0] if free else None)
        return self.record_claim(claim, agent) if claim else "no attempt"

    def record_release(self, task: str):
        self.model[task].status, self.model[task].owner, self.model[task].attempt = "pending", None, None

    @rule(store=STORE_INDEXES, task=tasks, attempt=attempts)
    def release(self, store: int, task: str, attempt: str):
        task_model = self.model.get(task)
        legal = task_model is not None and task_model.attempt == attempt and task_model.status != "completed"
        assert self.run(self.stores[store].release(task, attempt=attempt)) == legal
        if legal:
            self.record_release(task)

    @rule(store=STORE_INDEXES, agent=AGENTS)
    def release_all(self, store: int, agent: str):
        theirs = [
            ident for ident, task in self.model.items() if task.owner == agent and task.status != "completed"
        ]
        assert self.run(self.stores[store].release_owner_tasks(agent)) == tuple(theirs)
        for task in theirs:
            self.record_release(task)

    @rule(store=STORE_INDEXES, task=tasks)
    def delete(self, store: int, task: str):
        assert self.update(store, task, status="deleted") == (task in self.model)
        self.model.pop(task, None)
        for other in self.model.values():
            if task in other.blocked_by:
                other.blocked_by.remove(task)

    @invariant()
    def both_stores_list_the_same_board(self):
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
        for store in self.stores:
            assert [
                (
                    task.id,
                    task.subject,
                    task.status,
                    task.owner,
                    task.claim_attempt,
                    {key: value for key, value in task.metadata.items() if key != ATTEMPT_KEY},
                    list(task.blocked_by),
                    set(task.blocks),
                )
                for task in self.run(store.list_tasks())
            ] == wanted


class MailboxMachine(StoreMachine):
    port = "mailboxes"
    stores: list[MailboxStore]

    @initialize(foreign=st.booleans())
    def begin(self, foreign: bool):
        self.model: dict[str, dict[str, bool]] = {"ann": {}, "bob": {}, "cid": {}}
        """All mail of each owner in order, and whether it was marked read."""
        self.posted = 0
        for owner in self.model:
            self.run(self.stores[0].open_inbox(owner, foreign=foreign))

    def list_unread(self, owner: str):
        return [ident for ident, read in self.model[owner].items() if not read]

    @rule(store=STORE_INDEXES, to=AGENTS, count=st.sampled_from([1, 1, 1, 2, 40]))
    def post(self, store: int, to: str, count: int):
        for _ in range(count):
            self.posted += 1
            mail = MailMessage(id=f"m{self.posted}", sender="dan", text=f"{self.posted}", timestamp="2026")
            assert self.run(self.stores[store].post(to, mail)).id == mail.id
            self.model[to][mail.id] = False

    @rule(store=STORE_INDEXES, owner=AGENTS, limit=st.integers(1, 64))
    def take(self, store: int, owner: str, limit: int):
        """Takes mail in order, and at least one message if any is unread; the store chooses how many."""
        accepted = self.run(self.stores[store].take_unread(owner, limit=limit))
        unread = self.list_unread(owner)
        assert [mail.id for mail in accepted] == unread[: len(accepted)]
        assert bool(accepted) == bool(unread)
        assert len(accepted) <= limit
        assert all(mail.text == mail.id[1:] and not mail.read for mail in accepted)

    @rule(store=STORE_INDEXES, owner=AGENTS, data=st.data())
    def mark_some(self, store: int, owner: str, data: st.DataObject):
        task_model = [mail.id for mail in self.run(self.stores[store].take_unread(owner))]
        chosen = data.draw(st.sets(st.sampled_from([*task_model, "never posted"])))
        self.run(self.stores[store].mark_read(owner, chosen))
        self.model[owner].update(dict.fromkeys(chosen & set(task_model), True))

    @rule(store=STORE_INDEXES, owner=AGENTS)
    def take_and_mark_all(self, store: int, owner: str):
        while accepted := self.run(self.stores[store].take_unread(owner)):
            ids = [mail.id for mail in accepted]
            assert ids == self.list_unread(owner)[: len(ids)]
            self.run(self.stores[store].mark_read(owner, ids))
            self.model[owner].update(dict.fromkeys(ids, True))
        assert self.list_unread(owner) == []

    @rule(owner=AGENTS)
    def wait(self, owner: str):
        if self.list_unread(owner):
            self.run(self.stores[1].wait_for_mail(owner))

    @rule(store=STORE_INDEXES, owner=AGENTS)
    def remember(self, store: int, owner: str):
        history = self.run(self.stores[store].read_history(owner))
        assert {mail.id: mail.read for mail in history} == self.model[owner]
        assert len(history) == len(self.model[owner])
        assert [mail.id for mail in history if not mail.read] == self.list_unread(owner)


def create_machine(base, store):
    case = type(f"{base.__name__}On{store.title()}", (base,), {"kind": store}).TestCase
    case.settings = QUIET
    return case


TestBoardInMemory = create_machine(BoardMachine, "memory")
TestBoardOnFiles = create_machine(BoardMachine, "files")
TestMailboxesInMemory = create_machine(MailboxMachine, "memory")
TestMailboxesOnFiles = create_machine(MailboxMachine, "files")
