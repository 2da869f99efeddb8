"""`shoal models` commands: list the models, and test one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import clean, count
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import print_json
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.models.trying import Trial
    from shoal.app.views.models import ModelRow, ModelsView, ProviderRow


@click.group("models")
def command() -> None:
    """See which models can be asked, and try one."""


@command.command("ls", short_help="List providers and models, with prices.")
@click.option("--all", "everything", is_flag=True, help="Also the models of providers without a key.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def ls(*, everything: bool, settings: str | None, as_json: bool) -> int:
    """List providers and models: keys, names, prices in dollars per million tokens, and windows.

    Providers that can be asked are asked for their own lists, for at most 2 seconds.
    """
    from shoal.app.settings.settings import load_settings
    from shoal.app.views.models import models_view

    view = asyncio.run(models_view(load_settings(cwd=Path.cwd().resolve(), given=settings)))
    if as_json:
        print_json(view)
        return exits.OK
    for line in drawn(view, everything=everything, colours=has_colours(sys.stdout)):
        click.echo(line)
    return exits.OK


@command.command("test", short_help="Ask a model one tiny question.")
@click.argument("name", required=False)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="The outcome as one JSON object.")
def test(*, name: str | None, settings: str | None, as_json: bool) -> int:
    """Ask a model one tiny question (the configured one where none is named), which may cost a little.

    Exits with 1 where it does not answer.
    """
    from shoal.app.models.trying import tried
    from shoal.app.settings.settings import load_settings
    from shoal.core.clock import SystemClock
    from shoal.core.errors import ShoalError
    from shoal.surfaces.terminal.sentences import explain, say

    loaded = load_settings(cwd=Path.cwd().resolve(), given=settings)
    try:
        trial = asyncio.run(tried(name, loaded, SystemClock()))
    except ShoalError as error:
        told = loaded.secrets.redacted(explain(error))
        if as_json:
            print_json({"ok": False, "error": type(error).__name__, "message": told})
        else:
            say(told)
        return exits.ERROR
    if as_json:
        print_json({"ok": True, "trial": trial})
    else:
        for line in outcome(trial, colours=has_colours(sys.stdout)):
            click.echo(line)
    return exits.OK


def outcome(trial: Trial, *, colours: bool) -> Iterator[str]:
    name = painted(f"{trial.provider}:{trial.model}", BOLD, colours=colours)
    other = f" (as {clean(trial.answered_as)})" if trial.answered_as != trial.model else ""
    yield f"{name} {painted('answers', GREEN, colours=colours)}{other}"
    yield f"  {'streams' if trial.streamed else 'does not stream'}, and " + (
        "calls tools"
        if trial.called
        else "did not call the tool it was asked to call: agents can do little with it"
    )
    again = f", asked {trial.attempts} times" if trial.attempts > 1 else ""
    yield f"  first word after {trial.first_seconds:.1f} s, whole after {trial.seconds:.1f} s{again}"
    price = "a price that nobody told us" if trial.usd is None else f"${trial.usd:.6f}"
    yield f"  {count(trial.usage.total_tokens)} tokens for {price}"


def drawn(view: ModelsView, *, everything: bool, colours: bool) -> Iterator[str]:
    yield painted("providers", BOLD, colours=colours)
    for provider in view.providers:
        name = painted(f"{provider.name:<10}", GREEN if provider.configured else DIM, colours=colours)
        yield f"  {name}  {_reached(provider)}"
    yield ""
    yield painted("models", BOLD, colours=colours)
    rows = [row for row in view.models if everything or row.configured or row.default]
    if not rows:
        yield "  None can be asked yet. Set one up: shoal setup. All that are known: shoal models ls --all"
        return
    width = max(len(f"{row.provider}:{row.id}") for row in rows)
    for row in rows:
        yield "  " + _line(row, width, colours=colours)
    unlisted = len(view.models) - len(rows)
    if unlisted:
        yield painted(f"  and {unlisted} of providers without a key: --all", DIM, colours=colours)
    if view.default:
        yield f"default: {clean(view.default)} ({clean(view.default_origin)})"


def _reached(provider: ProviderRow) -> str:
    where = clean(provider.address)
    if not provider.configured:
        missing = f"no key ({provider.key_variable})" if provider.key_variable else "nobody answers"
        return f"{missing}, {where}"
    key = f"key from {clean(provider.key)}" if provider.key else "no key"
    said = "did not say what it has" if provider.offered is None else f"offers {len(provider.offered)}"
    return f"{key}, {where}, {said}"


def _line(row: ModelRow, width: int, *, colours: bool) -> str:
    name = clean(f"{row.provider}:{row.id}")
    shown = painted(f"{name:<{width}}", BOLD, colours=colours) if row.default else f"{name:<{width}}"
    price = "price not known"
    if row.input is not None and row.output is not None:
        price = f"${row.input:g} in ${row.output:g} out"
    notes = [*row.aliases, *(["default"] if row.default else ())]
    if row.offered is False:
        notes.append("not offered")
    return f"{shown}  {row.window // 1000:>5}k  {price:<22}  {', '.join(notes)}".rstrip()
