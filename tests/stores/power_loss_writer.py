"""A process that changes one kind of state and reports each change that was acknowledged.

Usage: python power_loss_writer.py KIND HOME durable|fast
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from mail_helpers import make_mail
from store_helpers import make_member

from shoal.app.library.team_definition import write_team_definition
from shoal.app.mcp.mcp_host import McpOAuthTokenFile
from shoal.app.settings.settings_writer import save_default_model
from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import SystemClock
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.permissions.questions import AllowAnswer
from shoal.core.store import Store
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.home.credential_file import store_provider_credentials
from shoal.stores.files.home.run_copy import read_run_files, write_run_files
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.stores.store_choice import open_store
from shoal.stores.stored_run import StoredRun
from shoal.testing.contracts.question_contract import make_question
from shoal.testing.contracts.session_contract import CWD, FIRST, SECOND, make_entry
from shoal.wire.team_definition_codec import StoredTeamDefinition
from shoal.wire.trust_codec import TrustDecision

TEAM = "roof"
WORKER = AgentId("a1")
NOTES = ("one", "two", "three")
MANY_MESSAGES = 400
SETTINGS_FILE = "settings.json"
TOKEN_FILE = Path("shoal", "tokens", "server.json")
ACKNOWLEDGEMENT = b"acknowledged: "
"""Start of the lines on standard output; libraries may start programs that write there too."""


def ignore_report(_text: str) -> None:
    """Ignore what a store reports."""


def make_services() -> dict[str, Any]:
    return {"clock": SystemClock(), "ids": IdGenerator(), "report": ignore_report}


Fact = tuple[str, str]
"""A name and the value that a reader must find under it."""


async def write_transcripts(store: Store) -> AsyncIterator[Fact]:
    session = store.create_session(SessionId(FIRST), cwd=CWD)
    for agent in (LEAD_ID, WORKER):
        transcript = session.open_transcript(agent, cwd=CWD, version="0")
        after = None
        for text in NOTES:
            transcript.append(make_entry(text, after=after))
            after = text
            yield f"{agent}/entry-{text}", text
        transcript.close()


async def write_forks(store: Store) -> AsyncIterator[Fact]:
    session = store.create_session(SessionId(FIRST), cwd=CWD)
    transcript = session.open_transcript(LEAD_ID, cwd=CWD, version="0")
    after = None
    for text in NOTES:
        transcript.append(make_entry(text, after=after))
        after = text
    transcript.close()
    store.fork_session(session, SECOND, cwd=CWD)
    yield "fork", ",".join(NOTES)


async def write_definitions(store: Store) -> AsyncIterator[Fact]:
    session = store.create_session(SessionId(FIRST), cwd=CWD)
    for required in ("hooks", "tools"):
        definition = StoredTeamDefinition(team=TEAM, agents={}, members={}, required=(required,))
        write_team_definition(store, session, definition)
        yield "required", required


async def write_exports(store: Store) -> AsyncIterator[Fact]:
    """Fill another home, and write its run as `shoal store export` does."""
    home = get_file_store_home(store)
    source = FileStore(home.with_name("source"))
    for write in (write_results, write_questions, write_transcripts):
        async for _ in write(source):
            pass
    async with aclosing(source.open_board(FIRST, **make_services())) as board:
        await board.create(TaskDraft(subject="one", description=""))
    run = read_run_files(source.home, FIRST)
    write_run_files(home, run)
    yield FIRST, compute_run_digest(run)


def compute_run_digest(run: StoredRun) -> str:
    return hashlib.sha256(msgspec.json.encode(run)).hexdigest()


async def write_journal(store: Store) -> AsyncIterator[Fact]:
    session = store.create_session(SessionId(FIRST), cwd=CWD)
    journal = session.open_journal(SystemClock(), secrets=KEY_SHAPE_REDACTOR)
    for text in NOTES:
        journal.append(NoteAdded(agent=LEAD_ID, text=text))
        yield text, text
    journal.close()


async def write_results(store: Store) -> AsyncIterator[Fact]:
    results = store.create_session(SessionId(FIRST), cwd=CWD).open_results()
    for text in NOTES:
        path = results.save_result("report.md", text.encode())
        yield path.name, text


async def write_questions(store: Store) -> AsyncIterator[Fact]:
    questions = store.create_session(SessionId(FIRST), cwd=CWD).open_questions()
    for name in ("q-1", "q-2"):
        questions.store_question(make_question(name))
        yield name, "asked"
        questions.create_answer(name, AllowAnswer())
        yield name, "answered"


async def write_late_answers(store: Store) -> AsyncIterator[Fact]:
    questions = store.create_session(SessionId(FIRST), cwd=CWD).open_questions()
    for name in ("q-1", "q-2"):
        questions.store_question(make_question(name))
        questions.create_answer(name, AllowAnswer())
        questions.create_late_answer(name, AllowAnswer())
        yield name, "answered late"


async def write_metadata(store: Store) -> AsyncIterator[Fact]:
    session = store.create_session(SessionId(FIRST), cwd=CWD)
    session.save_agent_metadata(WORKER, SubagentMetadata(agent_type="Explore", mode="plan"))
    yield "mode", "plan"
    session.save_agent_mode(WORKER, "default")
    yield "mode", "default"


async def write_rosters(store: Store) -> AsyncIterator[Fact]:
    rosters = store.open_rosters(clock=SystemClock(), report=ignore_report)
    await rosters.create_team(TEAM, lead=make_member("x"), session="s-1", description="A roof")
    yield "team-lead", "member"
    for name in ("ann", "bob"):
        await rosters.add_member(TEAM, make_member(name))
        yield name, "member"
    await rosters.remove_member(TEAM, "ann")
    yield "ann", "gone"


async def write_board(store: Store) -> AsyncIterator[Fact]:
    async with aclosing(store.open_board(TEAM, **make_services())) as board:
        for subject in NOTES:
            task = await board.create(TaskDraft(subject=subject, description=""))
            yield task.id, "pending"
        await board.claim("1", by="ann")
        await board.update("1", TaskUpdate(status="completed"), by="ann")
        yield "1", "completed"
        await board.update("2", TaskUpdate(status="completed"), by="ann")
        yield "2", "completed"


async def write_claims(store: Store) -> AsyncIterator[Fact]:
    async with aclosing(store.open_board(TEAM, **make_services())) as board:
        for subject in NOTES:
            await board.create(TaskDraft(subject=subject, description=""))
        await board.claim("1", by="ann")
        yield "1", "in_progress ann"
        await board.update("1", TaskUpdate(status="completed"), by="ann")
        yield "1", "completed ann"
        claim = await board.claim_next(by="bob")
        assert claim is not None
        assert claim.attempt is not None
        yield "2", "in_progress bob"
        await board.release("2", attempt=claim.attempt)
        yield "2", "pending None"


async def write_deleted_tasks(store: Store) -> AsyncIterator[Fact]:
    async with aclosing(store.open_board(TEAM, **make_services())) as board:
        for subject in NOTES:
            task = await board.create(TaskDraft(subject=subject, description=""))
            yield task.id, "there"
        await board.delete("2")
        yield "2", "deleted"
        await board.update("3", TaskUpdate(status="deleted"), by="ann")
        yield "3", "deleted"
        task = await board.create(TaskDraft(subject="four", description=""))
        yield task.id, "there"


async def write_deleted_teams(store: Store) -> AsyncIterator[Fact]:
    rosters = store.open_rosters(clock=SystemClock(), report=ignore_report)
    for number in ("first", "second"):
        await rosters.create_team(TEAM, lead=make_member("x"), session="s-1", description=number)
        yield TEAM, number
        if number == "first":
            store.load_signing_key(TEAM)
            async with aclosing(store.open_board(TEAM, **make_services())) as board:
                await board.create(TaskDraft(subject="old", description=""))
            async with aclosing(store.open_mailboxes(TEAM, **make_services())) as mail:
                await mail.open_inbox("ann")
                await mail.post("ann", make_mail("old"))
        await rosters.delete_team(TEAM)
        yield TEAM, "none"


async def write_mail(store: Store) -> AsyncIterator[Fact]:
    async with aclosing(store.open_mailboxes(TEAM, **make_services())) as mail:
        await mail.open_inbox("ann")
        for text in NOTES:
            await mail.post("ann", make_mail(text))
            yield text, "unread"
        taken = await mail.take_unread("ann")
        await mail.mark_read("ann", [taken[0].id])
        yield NOTES[0], "read"
        await mail.post("ann", make_mail("four"))
        yield "four", "unread"


async def write_much_mail(store: Store) -> AsyncIterator[Fact]:
    """Fill the overflow file, empty it into the inbox, and archive what was read."""
    async with aclosing(store.open_mailboxes(TEAM, **make_services())) as mail:
        await mail.open_inbox("ann")
        for number in range(MANY_MESSAGES):
            text = f"{number} " + "x" * 200
            await mail.post("ann", make_mail(text))
            yield text, "unread"
        while taken := await mail.take_unread("ann"):
            await mail.mark_read("ann", [each.id for each in taken])
            for each in taken:
                yield each.text, "read"


async def write_keys(store: Store) -> AsyncIterator[Fact]:
    for _ in range(2):
        yield TEAM, store.load_signing_key(TEAM).hex()


async def write_trust(store: Store) -> AsyncIterator[Fact]:
    trust = ProjectTrustFile(get_file_store_home(store))
    for name in NOTES:
        decision = TrustDecision(digest=name, trusted=True, at=0)
        trust.store_trust_decisions(Path(CWD), {name: decision})
        yield name, name


async def write_credentials(store: Store) -> AsyncIterator[Fact]:
    home = get_file_store_home(store)
    for name in NOTES:
        store_provider_credentials(home, name, {"KEY": name})
        yield name, name


async def write_tokens(store: Store) -> AsyncIterator[Fact]:
    file = McpOAuthTokenFile(get_file_store_home(store) / TOKEN_FILE)
    for token in ("first token", "second token"):
        file.write(token.encode())
        yield "token", token


async def write_settings(store: Store) -> AsyncIterator[Fact]:
    path = get_file_store_home(store) / SETTINGS_FILE
    for model in ("anthropic:first", "anthropic:second"):
        save_default_model(model, path)
        yield "model", model


def get_file_store_home(store: Store) -> Path:
    assert isinstance(store, FileStore)
    return store.home


WRITERS = {
    "transcripts": write_transcripts,
    "forks": write_forks,
    "definitions": write_definitions,
    "journal": write_journal,
    "results": write_results,
    "questions": write_questions,
    "late answers": write_late_answers,
    "metadata": write_metadata,
    "rosters": write_rosters,
    "exports": write_exports,
    "board": write_board,
    "claims": write_claims,
    "deleted tasks": write_deleted_tasks,
    "deleted teams": write_deleted_teams,
    "mail": write_mail,
    "much mail": write_much_mail,
    "keys": write_keys,
    "trust": write_trust,
    "credentials": write_credentials,
    "tokens": write_tokens,
    "settings": write_settings,
}


async def main(kind: str, home: str, mode: str) -> None:
    async for name, value in WRITERS[kind](open_store(Path(home), durable=mode == "durable")):
        os.write(1, ACKNOWLEDGEMENT + json.dumps([name, value]).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
