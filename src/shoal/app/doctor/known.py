"""Symptoms that `shoal doctor` can explain, in the order of listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from shoal.app.doctor import in_run, in_setup
from shoal.app.doctor.case import Case
from shoal.app.quarters.machine import Fact

Look: TypeAlias = Callable[[Case], Iterator[Fact]]

SYMPTOMS: dict[str, tuple[str, Look]] = {
    "result-not-seen": ("an agent ended and the lead knows nothing of it", in_run.result_not_seen),
    "recipient-not-found": ("a message does not reach whom it is for", in_run.recipient_not_found),
    "tool-missing": ("an agent says it has no such tool", in_setup.tool_missing),
    "permission-unexpected": (
        "something is refused or asked that should not be",
        in_run.permission_unexpected,
    ),
    "fork-not-taken": ("an agent is started where a fork was expected", in_setup.fork_not_taken),
    "command-not-forked": (
        "a slash command runs in the lead instead of an agent",
        in_setup.command_not_forked,
    ),
    "worktree-not-cleaned": ("a worktree is left behind", in_setup.worktree_not_cleaned),
    "wait-does-not-end": ("something waits and waits", in_run.wait_does_not_end),
}


def looked_into(case: Case) -> list[Fact]:
    """Return the diagnostics for the case. Raises `ShoalError` if it cannot be examined."""
    return list(SYMPTOMS[case.symptom][1](case))
