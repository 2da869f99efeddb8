"""The contract rules of the store family, on every store."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from pathlib import Path

import pytest
from store_openers import STORE_OPENERS

import shoal.testing.contracts
from shoal.core import ports, store
from shoal.core.teams import team_storage
from shoal.testing.contracts import (
    board_rules,
    mailbox_rules,
    question_rules,
    roster_rules,
    session_rules,
    signing_key_rules,
)


def choose_marks(rule, name):
    if name == "postgres":
        return [pytest.mark.needs("postgres", "asyncpg")]
    return [pytest.mark.spec(*rule.spec)] if rule.spec and name == "files" else []


def parametrize_rules(rules):
    """Run every rule on every store; spec marks count for the file store."""
    return pytest.mark.parametrize(
        ("rule", "store"),
        [
            pytest.param(
                rule,
                store,
                id=f"{name}-{rule.__name__}",
                marks=choose_marks(rule, name),
            )
            for name, store in STORE_OPENERS.items()
            for rule in rules
        ],
    )


def list_open_files(home):
    """Return what this process has open in the home, where the system tells."""
    descriptors = Path("/proc/self/fd")
    opened = []
    for descriptor in descriptors.iterdir() if descriptors.exists() else ():
        with suppress(OSError):
            opened.append(str(descriptor.readlink()))
    return [path for path in opened if path.startswith(str(home))]


@parametrize_rules(mailbox_rules())
async def test_mailbox_rules(rule, store, home):
    await rule(store(home).mailboxes)
    assert list_open_files(home) == []


@parametrize_rules(board_rules())
async def test_board_rules(rule, store, home):
    await rule(store(home).board)
    assert list_open_files(home) == []


@parametrize_rules(roster_rules())
async def test_roster_rules(rule, store, home):
    await rule(store(home).rosters)
    assert list_open_files(home) == []


@parametrize_rules((*session_rules(), *question_rules(), *signing_key_rules()))
async def test_session_question_and_key_rules(rule, store, home):
    await rule(store(home).store)
    assert list_open_files(home) == []


def list_unruled_methods(rules: str) -> list[str]:
    """Return the methods of the store family that no rule of this source text calls."""
    family = (
        store.Store,
        store.SessionStore,
        store.QuestionStore,
        store.WorkStore,
        ports.Transcript,
        ports.Journal,
        ports.ResultStore,
        team_storage.RosterStore,
        team_storage.StoredTaskBoard,
        team_storage.TaskBoard,
        team_storage.MailboxStore,
    )
    # Whoever runs the rules opens these three, and closes them.
    opened = {"open_rosters", "open_board", "open_mailboxes", "aclose"}
    return [
        f"{port.__name__}.{name}"
        for port in family
        for name, member in vars(port).items()
        if (inspect.isfunction(member) or isinstance(member, property))
        and not name.startswith("_")
        and name not in opened
        and not re.search(rf"\.{name}\b", rules)
    ]


def test_the_rules_call_every_method_of_the_store_family():
    package = Path(shoal.testing.contracts.__file__).parent
    rules = "".join(path.read_text() for path in package.glob("*.py"))
    assert list_unruled_methods(rules) == []
    assert "Journal.replay" in list_unruled_methods(rules.replace(".replay(", ".reload("))
