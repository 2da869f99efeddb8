"""The contract rules of the store family, on every store."""

from __future__ import annotations

import pytest
from store_openers import STORE_OPENERS

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


@parametrize_rules(mailbox_rules())
async def test_mailbox_rules(rule, store, home):
    await rule(store(home).mailboxes)


@parametrize_rules(board_rules())
async def test_board_rules(rule, store, home):
    await rule(store(home).board)


@parametrize_rules(roster_rules())
async def test_roster_rules(rule, store, home):
    await rule(store(home).rosters)


@parametrize_rules((*session_rules(), *question_rules(), *signing_key_rules()))
async def test_session_question_and_key_rules(rule, store, home):
    await rule(store(home).store)
