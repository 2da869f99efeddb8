"""`shoal cost` command: the cost of a session by agent, type, task and model, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import one_line
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json

if TYPE_CHECKING:
    from shoal.core.ids import AgentId, SessionId
    from shoal.core.usage import Spent
    from shoal.stores.files.ledger import Ledger


_NAMELESS = {"type": "unknown", "task": "none", "model": "unknown"}


@click.command("cost")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
def command(*, session: str | None, as_json: bool) -> int:
    """Show what SESSION (its id, or the start of it) has cost; the latest one here where none is given.

    Every run of the session counts. Requests that were cut before the provider told their cost are listed.
    """
    from shoal.app.settings.settings import home_directory
    from shoal.stores.files.ledger import usage_of
    from shoal.stores.files.places import journal_path

    home = home_directory()
    found = _session(home, session)
    journal = journal_path(home, found)
    ledger, by_task = usage_of(journal), _by_task(journal)
    if as_json:
        print_json({**_facts(found, ledger), "by_task": by_task})
        return exits.OK
    click.echo(f"session {found}")
    for (agent, model), spent in ledger.spent.items():
        click.echo(f"  {_who(agent, ledger)}  {one_line(model)}  {_told(spent)}")
    for what, sums in (("type", ledger.by_kind), ("task", by_task), ("model", ledger.by_model)):
        for name, spent in sums.items() if len(sums) > 1 else ():
            click.echo(f"  {what} {one_line(name) or _NAMELESS[what]}  {_told(spent)}")
    click.echo(f"  in all  {_told(ledger.total)}")
    for lost in ledger.unsettled:
        click.echo(
            f"  unsettled: {lost.request} to {one_line(lost.model)} by {lost.agent}: {one_line(lost.reason)}"
        )
    return exits.OK


def _by_task(journal: Path) -> dict[str, Spent]:
    """Sum the cost by board task, keyed by number and subject; cost without a task has an empty key."""
    from shoal.app.picture.picture import drawn
    from shoal.core.usage import Spent, Usage
    from shoal.stores.files.journal import read_journal

    picture = drawn(read_journal(journal))
    subjects = {(row.board, row.id): row.subject for row in picture.tasks.values()}
    boards = {row.board for row in picture.costs.rows.values() if row.task}
    sums: dict[str, Spent] = {}
    for row in picture.costs.rows.values():
        on_board = f"{row.board} " if len(boards) > 1 else ""
        subject = subjects.get((row.board, row.task), "")
        name = f"{on_board}#{row.task} {subject}".rstrip() if row.task else ""
        usage = Usage(
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cache_creation_input_tokens=row.cache_written_tokens,
            cache_read_input_tokens=row.cache_read_tokens,
        )
        spent = Spent(requests=row.requests, usage=usage, usd=row.usd, unpriced=row.unpriced)
        sums[name] = sums.get(name, Spent()) + spent
    return sums


def _session(home: Path, start: str | None) -> SessionId:
    from shoal.core.errors import NoSuchSession
    from shoal.core.ids import SessionId
    from shoal.stores.files.sessions import find_session, latest_session

    if start is not None:
        return SessionId(find_session(home, start).stem)
    latest = latest_session(home, str(Path.cwd()))
    if latest is None:
        raise NoSuchSession(f"There is no session in {Path.cwd()}. Name one: shoal cost ID", path=home)
    return latest


def _who(agent: AgentId, ledger: Ledger) -> str:
    worker = ledger.worker(agent)
    if agent not in ledger.workers:
        return agent
    task = f": {worker.task}" if worker.task else ""
    return one_line(f"{worker.name or agent} ({worker.kind}{task})")


def _told(spent: Spent) -> str:
    from shoal.core.wording import count, dollars, many

    usage = spent.usage
    cached = (
        f", {count(usage.cache_read_input_tokens)} from the cache" if usage.cache_read_input_tokens else ""
    )
    price = (
        f"{spent.unpriced} of unknown price, the rest {dollars(spent.usd)}"
        if spent.unpriced
        else dollars(spent.usd)
    )
    tokens = f"{count(usage.prompt_tokens)} tokens in{cached}, {count(usage.output_tokens)} out"
    return f"{many(spent.requests, 'request')}, {tokens}, {price}"


def _facts(session: SessionId, ledger: Ledger) -> dict[str, object]:
    return {
        "session": session,
        "total": ledger.total,
        "spent": [
            {"agent": agent, "worker": ledger.worker(agent), "model": model, "spent": spent}
            for (agent, model), spent in ledger.spent.items()
        ],
        "by_agent": ledger.by_agent,
        "by_type": ledger.by_kind,
        "by_model": ledger.by_model,
        "unsettled": ledger.unsettled,
    }
