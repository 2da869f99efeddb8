"""Contracts of the team stores, as functions to run on a store of your own.

Each rule is an async function of one argument: a function that opens the store, an async context manager. All
handles opened during one rule lead to the same store, which is empty when the rule begins. With pytest:

    @pytest.mark.parametrize("rule", board_rules(), ids=lambda rule: rule.__name__)
    async def test_my_board(rule, tmp_path):
        await rule(lambda: my_board(tmp_path))
"""

from __future__ import annotations

from shoal.testing.contracts.rules import Doors as Doors
from shoal.testing.contracts.rules import Rule as Rule


def mailbox_rules() -> tuple[Rule, ...]:
    from shoal.testing.contracts import mailboxes

    return mailboxes.RULES.all()


def board_rules() -> tuple[Rule, ...]:
    from shoal.testing.contracts import board, claims

    return (*board.RULES.all(), *claims.RULES.all())


def roster_rules() -> tuple[Rule, ...]:
    from shoal.testing.contracts import rosters

    return rosters.RULES.all()
