"""Contracts of the store family, as functions to run on your own store.

Each rule is an async function of one argument: a function that opens the store, an async context manager. All
handles opened during one rule lead to the same store, which is empty when the rule begins. With pytest:

    @pytest.mark.parametrize("rule", board_rules(), ids=lambda rule: rule.__name__)
    async def test_my_board(rule, tmp_path):
        await rule(lambda: my_board(tmp_path))
"""

from __future__ import annotations

from shoal.testing.contracts.contract_rules import ContractRule as ContractRule
from shoal.testing.contracts.contract_rules import StoreOpener as StoreOpener


def mailbox_rules() -> tuple[ContractRule, ...]:
    from shoal.testing.contracts import mailbox_contract

    return mailbox_contract.RULES.list_rules()


def board_rules() -> tuple[ContractRule, ...]:
    from shoal.testing.contracts import board_contract, claim_contract

    return (*board_contract.RULES.list_rules(), *claim_contract.RULES.list_rules())


def roster_rules() -> tuple[ContractRule, ...]:
    from shoal.testing.contracts import roster_contract

    return roster_contract.RULES.list_rules()


def session_rules() -> tuple[ContractRule, ...]:
    """Return the rules of sessions; they open a whole `Store`."""
    from shoal.testing.contracts import session_contract, work_contract

    return (*session_contract.RULES.list_rules(), *work_contract.RULES.list_rules())


def question_rules() -> tuple[ContractRule, ...]:
    """Return the rules of questions and answers; they open a whole `Store`."""
    from shoal.testing.contracts import question_contract

    return question_contract.RULES.list_rules()


def signing_key_rules() -> tuple[ContractRule, ...]:
    """Return the rules of signing keys; they open a whole `Store`."""
    from shoal.testing.contracts import signing_key_contract

    return signing_key_contract.RULES.list_rules()
