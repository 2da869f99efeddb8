"""Workflows of recorded runs, for commands in another process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.app.workflows.step_log import WorkflowRecord, WorkflowRecords
from shoal.core.errors import SessionNotFound, WorkflowError
from shoal.stores.files.sessions.journal_snapshots import load_journal_state

_MAX_SEARCHED_RUNS = 200


def find_recorded_workflow(
    runs: StoredRuns, reference: str, workflow: str | None = None
) -> tuple[RunHandle, WorkflowRecord]:
    """Return a workflow by its session, its id, or its name; the latest one if several match.

    Raises `WorkflowError`.
    """
    try:
        run = runs.find_run(reference)
    except SessionNotFound:
        return _search_recent_runs(runs, reference)
    found = list_recorded_workflows(run)
    if workflow is None:
        # A workflow that another one started continues with that one.
        found = [each for each in found if not each.started.parent]
    else:
        found = [each for each in found if workflow in (each.started.workflow, each.started.name)]
    if not found:
        raise WorkflowError(
            f"The session {run.session} has no workflow{f' {workflow!r}' if workflow else ''}."
        )
    return run, found[-1]


def list_recorded_workflows(run: RunHandle) -> Sequence[WorkflowRecord]:
    records, _ = load_journal_state(run.journal_path, WorkflowRecords)
    return list(records.workflows.values())


def _search_recent_runs(runs: StoredRuns, reference: str) -> tuple[RunHandle, WorkflowRecord]:
    for run in islice(runs.list_runs_newest_first(), _MAX_SEARCHED_RUNS):
        for record in reversed(list_recorded_workflows(run)):
            name = None if record.started.parent else record.started.name
            if reference in (record.started.workflow, name):
                return run, record
    raise WorkflowError(
        f"No session and no workflow in the last {_MAX_SEARCHED_RUNS} runs is named {reference!r}. Pass the "
        "beginning of a session's id, or the id or name of a workflow."
    )
