"""What every store of the record keeps, on each store there is."""

from __future__ import annotations

import pytest
from record_stores import STORES

from shoal.testing.contracts import board_rules, mailbox_rules, roster_rules


def each(rules):
    """Every rule on every store; what the rules show of the specification, they show on files."""
    return pytest.mark.parametrize(
        ("rule", "store"),
        [
            pytest.param(
                rule,
                store,
                id=f"{name}-{rule.__name__}",
                marks=[pytest.mark.spec(*rule.spec)] if rule.spec and name == "files" else [],
            )
            for name, store in STORES.items()
            for rule in rules
        ],
    )


@each(mailbox_rules())
async def test_mailboxes(rule, store, home):
    await rule(store(home).mailboxes)


@each(board_rules())
async def test_board(rule, store, home):
    await rule(store(home).board)


@each(roster_rules())
async def test_rosters(rule, store, home):
    await rule(store(home).rosters)
