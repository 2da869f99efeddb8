"""`shoal setup` command: ask for a key without showing it, test it, and store it for this user only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits

if TYPE_CHECKING:
    from shoal.app.models.setting_up import Choice, Wish
    from shoal.app.options import Options
    from shoal.app.settings.settings import Settings

CHOICES = {
    "anthropic": "Claude models; a key from console.anthropic.com",
    "openai": "GPT models; a key from platform.openai.com",
    "openrouter": "models of many makers; a key from openrouter.ai",
    "ollama": "models on this machine; no key",
    "server": "a server of your own that speaks as OpenAI's does",
}
_KEYLESS = ("ollama",)


@click.command("setup")
@click.option(
    "--provider", type=click.Choice(list(CHOICES)), help="Which to set up; asked for where left out."
)
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input, and ask nothing.")
@click.option("--base-url", metavar="URL", default="", help="The address, where it is not the usual one.")
@click.option("--model", metavar="NAME", help="The model to ask where none is named.")
@click.option("--no-test", is_flag=True, help="Keep it without trying it.")
@click.option("--remove", type=click.Choice(list(CHOICES)), help="Forget what is kept for a provider.")
def command(
    *,
    provider: str | None,
    key_stdin: bool,
    base_url: str,
    model: str | None,
    no_test: bool,
    remove: str | None,
) -> int:
    """Set a provider up: choose it, paste its key, try it, and pick the model to ask.

    The key is kept in shoal/credentials.json of Shoal's home, readable by you alone, and tools of agents do
    not get it. Variables in the environment come before what is kept.
    """
    from shoal.app.settings.settings import load_settings

    settings = load_settings(cwd=Path.cwd().resolve())
    if remove is not None:
        return _remove(settings, cast("Choice", remove))
    asks = not key_stdin and sys.stdin.isatty() and sys.stdout.isatty()
    if provider is None:
        if not asks:
            raise click.UsageError(f"Say which: --provider {'|'.join(CHOICES)}, and --key-stdin for its key.")
        provider = _chosen()
    wish = _wish(cast("Choice", provider), base_url, key_stdin=key_stdin, asks=asks)
    return _set_up(settings, wish, model, asks=asks, tests=not no_test)


def offer(options: Options) -> None:
    """Offer to set up a model at the start of an interactive session, if none is configured."""
    from shoal.app.settings.settings import load_settings

    cwd = (options.cwd or Path.cwd()).expanduser().resolve()
    settings = load_settings(cwd=cwd, given=options.settings)
    if options.model is not None or settings.model is not None or not asyncio.run(_is_bare(settings)):
        return
    click.echo("No model is configured yet, so there is nobody to ask.")
    if click.confirm("Set one up now?", default=True):
        _set_up(settings, _wish(cast("Choice", _chosen()), "", key_stdin=False, asks=True), None)


async def _is_bare(settings: Settings) -> bool:
    from shoal.app.models.choosing import chosen_model
    from shoal.core.clock import SystemClock
    from shoal.core.errors import NoModel, ShoalError
    from shoal.core.ids import Ids

    try:
        model = await chosen_model(None, settings, SystemClock(), Ids().random)
    except NoModel:
        return True
    except ShoalError:
        return False
    await model.aclose()
    return False


def _chosen() -> str:
    for number, (name, what) in enumerate(CHOICES.items(), 1):
        click.echo(f"  {number}  {name:<10}  {what}")
    names = list(CHOICES)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    answer: str = click.prompt(
        "Which provider", type=click.Choice([*numbers, *names]), show_choices=False, default="1"
    )
    return names[int(answer) - 1] if answer.isdigit() else answer


def _wish(choice: Choice, base_url: str, *, key_stdin: bool, asks: bool) -> Wish:
    from shoal.app.models.setting_up import Wish

    if choice == "server" and not base_url and asks:
        base_url = click.prompt("Its address, such as http://localhost:8000/v1")
    key = ""
    if key_stdin:
        key = sys.stdin.read().strip()
    elif asks and choice not in _KEYLESS:
        needless = choice == "server" or bool(base_url)
        words = "Its key (not shown; Enter for none)" if needless else "Paste the key (it is not shown)"
        key = click.prompt(words, hide_input=True, default="" if needless else None, show_default=False)
    return Wish(choice=choice, key=key, base_url=base_url)


def _set_up(
    settings: Settings, wish: Wish, model: str | None, *, asks: bool = True, tests: bool = True
) -> int:
    from shoal.app.models import setting_up
    from shoal.stores.files.credentials import credentials_path

    tried = setting_up.as_wished(settings, wish)
    name = setting_up.whole_name(model or _picked(tried, wish, asks=asks), wish)
    passes = not tests or _passes(tried, name)
    if not passes and not (asks and click.confirm("Keep it anyway?", default=False)):
        click.echo("Nothing was kept.")
        return exits.ERROR
    setting_up.keep(settings, wish, name)
    click.echo(f"Kept in {clean(str(credentials_path(settings.home)))}, for you alone.")
    if name is not None:
        click.echo(f"Asked where no model is named: {clean(name)}")
    for variable in setting_up.overriding(settings, wish.provider):
        click.echo(
            f"{variable} is set elsewhere and comes first: what was kept does not count until it is not."
        )
    return exits.OK


def _passes(settings: Settings, name: str | None) -> bool:
    from shoal.app.models.trying import tried
    from shoal.core.clock import SystemClock
    from shoal.core.errors import ShoalError
    from shoal.surfaces.cli.models import outcome
    from shoal.surfaces.terminal.paint import has_colours
    from shoal.surfaces.terminal.sentences import explain, say

    click.echo("Trying it with one tiny request …")
    try:
        trial = asyncio.run(tried(name, settings, SystemClock()))
    except ShoalError as error:
        say(settings.secrets.redacted(explain(error)))
        return False
    for line in outcome(trial, colours=has_colours(sys.stdout)):
        click.echo(line)
    return True


def _picked(settings: Settings, wish: Wish, *, asks: bool) -> str | None:
    """Return the model to use if none is named; None leaves the choice to discovery."""
    from shoal.app.models import setting_up

    usual = setting_up.USUAL_MODELS.get(wish.choice)
    if usual is None:
        names: Sequence[str] = asyncio.run(setting_up.offered(settings))
        for name in names[:20]:
            click.echo(f"  {clean(name)}")
        usual = names[0] if names else None
    if not asks:
        return usual
    answer: str = click.prompt("The model to ask", default=usual)
    return answer


def _remove(settings: Settings, choice: Choice) -> int:
    from shoal.app.models import setting_up

    if setting_up.forget(settings, choice):
        click.echo(f"What was kept for {choice} is gone. A key that leaked is taken back at its provider.")
        return exits.OK
    click.echo(f"Nothing is kept for {choice}.")
    return exits.OK
