"""`shoal doctor`: what is there, what is missing, what to type."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.paint import BOLD, DIM, GREEN, RED, YELLOW, clean, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.machine import Fact

_STYLES = {"ok": GREEN, "none": DIM, "warn": YELLOW, "bad": RED}
_WORDS = {"ok": "ok", "none": "–", "warn": "warn", "bad": "BAD"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="All facts as one JSON object.")
@click.option("--settings", metavar="FILE|JSON", help="Settings on top of those in files.")
@click.option("--model", metavar="NAME", help="Check this model instead of the configured one.")
def command(*, as_json: bool, settings: str | None, model: str | None) -> int:
    """Check the set-up: models, home, settings, programs; and say what to type.

    Exits with 1 when something keeps `shoal -p` from working.
    """
    from shoal.app.doctor import examine

    facts = examine(os.environ, Path.cwd(), settings=settings, model=model)
    bad = any(fact.state == "bad" for fact in facts)
    if as_json:
        from shoal.wire.content import dump

        click.echo(dump({"ok": not bad, "facts": facts}))
    else:
        for line in drawn(facts, colours=has_colours(sys.stdout)):
            click.echo(line)
    return exits.ERROR if bad else exits.OK


def drawn(facts: Sequence[Fact], *, colours: bool) -> Iterator[str]:
    width = max((len(fact.name) for fact in facts), default=0)
    for area, group in groupby(facts, key=lambda fact: fact.area):
        yield painted(area, BOLD, colours=colours)
        for fact in group:
            state = painted(f"{_WORDS[fact.state]:<4}", _STYLES[fact.state], colours=colours)
            yield f"  {state}  {fact.name:<{width}}  {clean(fact.value)}"
            if fact.advice:
                yield from (f"        {'':<{width}}  → {line}" for line in fact.advice.splitlines())
        yield ""
    yield _summary(facts)


def _summary(facts: Sequence[Fact]) -> str:
    bad = [f"{fact.area}: {fact.name}" for fact in facts if fact.state == "bad"]
    if bad:
        return f"Shoal cannot run yet because of {', '.join(bad)}. The arrows say what to do."
    warned = sum(fact.state == "warn" for fact in facts)
    if warned:
        return (
            f"Shoal can run. {warned} thing{'s' if warned > 1 else ''} could be better; the arrows say how."
        )
    return "Everything is there."
