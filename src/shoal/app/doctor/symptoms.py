"""Symptoms that `shoal doctor` can explain, in the order of listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from shoal.app.doctor import run_symptoms, setup_symptoms
from shoal.app.doctor.doctor_case import DoctorContext
from shoal.app.isolation.machine_checks import DoctorDiagnostic

SymptomCheck: TypeAlias = Callable[[DoctorContext], Iterator[DoctorDiagnostic]]

SYMPTOMS: dict[str, tuple[str, SymptomCheck]] = {
    "result-not-seen": (
        "an agent ended, but the lead was not notified",
        run_symptoms.explain_agent_result_not_seen,
    ),
    "recipient-not-found": (
        "a message does not reach its recipient",
        run_symptoms.explain_recipient_not_found,
    ),
    "tool-missing": ("an agent says that a tool is missing", setup_symptoms.explain_tool_missing),
    "permission-unexpected": (
        "a call is unexpectedly refused or needs approval",
        run_symptoms.explain_permission_unexpected,
    ),
    "fork-not-taken": (
        "an agent is started instead of a fork",
        setup_symptoms.explain_fork_not_taken,
    ),
    "command-not-forked": (
        "a slash command runs in the lead instead of an agent",
        setup_symptoms.explain_slash_command_not_forked,
    ),
    "worktree-not-cleaned": ("a worktree is left behind", setup_symptoms.explain_worktree_not_cleaned),
    "wait-does-not-end": ("a wait does not end", run_symptoms.explain_wait_does_not_end),
}


def examine_symptom(case: DoctorContext) -> list[DoctorDiagnostic]:
    """Return the diagnostics for the case. Raises `ShoalError` if it cannot be examined."""
    return list(SYMPTOMS[case.symptom][1](case))
