"""`shoal cost` command: the cost of a session by agent, type, task, phase and model, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import to_one_line
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_journal_damage, print_json

if TYPE_CHECKING:
    from shoal.core.budgets.usage import UsageAndCostTotals
    from shoal.core.ids import AgentId, SessionId
    from shoal.stores.files.sessions.usage_summary import RunUsageSummary


_MISSING_LABELS = {"type": "unknown", "task": "none", "phase": "none", "model": "unknown"}


@click.command("cost")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def cost_command(*, session: str | None, as_json: bool) -> int:
    """Show the cost of SESSION (its id or the beginning of it); the default is the latest session here.

    All runs of the session are included. Interrupted requests of unknown cost are listed.
    """
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

    print_journal_damage()
    session_id, journal = _find_session_and_journal(find_process_shoal_home(), session)
    ledger, (by_task, by_phase) = summarize_journal_usage(journal), _sum_cost_by_task_and_phase(journal)
    if as_json:
        print_json({**_costs_to_dict(session_id, ledger), "by_task": by_task, "by_phase": by_phase})
        return exit_codes.OK
    click.echo(f"session {session_id}")
    for (agent, model), totals in ledger.spent.items():
        click.echo(
            f"  {_format_agent_cost_label(agent, ledger)}  {to_one_line(model)}  "
            f"{_format_cost_totals(totals)}"
        )
    for group_name, group_totals in (
        ("type", ledger.by_agent_kind),
        ("task", by_task),
        ("phase", by_phase),
        ("model", ledger.by_model),
    ):
        for name, totals in group_totals.items() if len(group_totals) > 1 else ():
            label = to_one_line(name) or _MISSING_LABELS[group_name]
            click.echo(f"  {group_name} {label}  {_format_cost_totals(totals)}")
    click.echo(f"  total   {_format_cost_totals(ledger.total)}")
    for unsettled in ledger.unsettled:
        click.echo(
            f"  unsettled: {unsettled.request} to {to_one_line(unsettled.model)} "
            f"by {unsettled.agent}: {to_one_line(unsettled.reason)}; "
            f"counted as {unsettled.tokens} tokens, ${unsettled.usd:.4f}"
        )
    return exit_codes.OK


def _sum_cost_by_task_and_phase(
    journal: Path,
) -> tuple[dict[str, UsageAndCostTotals], dict[str, UsageAndCostTotals]]:
    """Sum the cost by board task, keyed by number and subject, and by phase of a workflow.

    Cost without a task or phase has an empty key.
    """
    from shoal.app.run_view.run_view import RunView
    from shoal.core.budgets.usage import Usage, UsageAndCostTotals
    from shoal.stores.files.sessions.journal_snapshots import load_journal_state

    run_view, _ = load_journal_state(journal, RunView)
    subjects = {(row.board, row.id): row.subject for row in run_view.tasks.values()}
    boards = {row.board for row in run_view.costs.rows.values() if row.task}
    totals_by_task: dict[str, UsageAndCostTotals] = {}
    totals_by_phase: dict[str, UsageAndCostTotals] = {}
    for row in run_view.costs.rows.values():
        board_prefix = f"{row.board} " if len(boards) > 1 else ""
        subject = subjects.get((row.board, row.task), "")
        name = f"{board_prefix}#{row.task} {subject}".rstrip() if row.task else ""
        usage = Usage(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cache_creation_input_tokens=row.cache_written_tokens,
            cache_read_input_tokens=row.cache_read_tokens,
        )
        totals = UsageAndCostTotals(requests=row.requests, usage=usage, usd=row.usd, unpriced=row.unpriced)
        totals_by_task[name] = totals_by_task.get(name, UsageAndCostTotals()) + totals
        totals_by_phase[row.phase] = totals_by_phase.get(row.phase, UsageAndCostTotals()) + totals
    return totals_by_task, totals_by_phase


def _find_session_and_journal(home: Path, start: str | None) -> tuple[SessionId, Path]:
    from shoal.app.run_access.stored_runs import open_stored_runs
    from shoal.app.settings.configured_store import open_home_store
    from shoal.core.errors import SessionNotFound

    store = open_home_store(home, read_only=True)
    try:
        found = store.find_latest_session(str(Path.cwd())) if start is None else store.find_session(start)
    except SessionNotFound:
        if start is not None:
            raise
        raise SessionNotFound(
            f"There is no session in {Path.cwd()}. Specify a session: shoal cost ID", path=home
        ) from None
    return found.session, open_stored_runs(home, found.session).open_run(found.session).journal_path


def _format_agent_cost_label(agent: AgentId, ledger: RunUsageSummary) -> str:
    agent_record = ledger.get_agent(agent)
    if agent not in ledger.agents:
        return agent
    task = f": {agent_record.task}" if agent_record.task else ""
    return to_one_line(f"{agent_record.name or agent} ({agent_record.kind}{task})")


def _format_cost_totals(totals: UsageAndCostTotals) -> str:
    from shoal.core.text.text_format import format_count_with_noun, format_dollars, format_token_count

    usage = totals.usage
    cache_note = (
        f", {format_token_count(usage.cache_read_input_tokens)} from the cache"
        if usage.cache_read_input_tokens
        else ""
    )
    price = (
        f"{totals.unpriced} with an unknown price, the rest {format_dollars(totals.usd)}"
        if totals.unpriced
        else format_dollars(totals.usd)
    )
    tokens = (
        f"{format_token_count(usage.prompt_tokens)} tokens in{cache_note}, "
        f"{format_token_count(usage.output_tokens)} out"
    )
    return f"{format_count_with_noun(totals.requests, 'request')}, {tokens}, {price}"


def _costs_to_dict(session: SessionId, ledger: RunUsageSummary) -> dict[str, object]:
    return {
        "session": session,
        "total": ledger.total,
        "spent": [
            {"agent": agent, "worker": ledger.get_agent(agent), "model": model, "spent": spent}
            for (agent, model), spent in ledger.spent.items()
        ],
        "by_agent": ledger.by_agent,
        "by_type": ledger.by_agent_kind,
        "by_model": ledger.by_model,
        "unsettled": ledger.unsettled,
    }
