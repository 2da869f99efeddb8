"""`shoal setup` command: ask for a key without showing it, test it, and store it for this user only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes

if TYPE_CHECKING:
    from shoal.app.models.provider_setup import ProviderChoice, ProviderSetup
    from shoal.app.options import Options
    from shoal.app.settings.settings import Settings

PROVIDER_CHOICES = {
    "anthropic": "Claude models; a key from console.anthropic.com",
    "openai": "GPT models; a key from platform.openai.com",
    "openrouter": "models from many vendors; a key from openrouter.ai",
    "ollama": "models on this machine; no key",
    "server": "your own server with an OpenAI-compatible API",
}
_KEYLESS_PROVIDERS = ("ollama",)


@click.command("setup")
@click.option(
    "--provider",
    type=click.Choice(list(PROVIDER_CHOICES)),
    help="The provider to set up; if you omit it, Shoal asks.",
)
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input and do not prompt.")
@click.option("--base-url", metavar="URL", default="", help="The URL, if it is not the default.")
@click.option("--model", metavar="NAME", help="The default model.")
@click.option("--no-test", is_flag=True, help="Store the key without testing it.")
@click.option("--remove", type=click.Choice(list(PROVIDER_CHOICES)), help="Remove a provider's stored key.")
def setup_command(
    *,
    provider: str | None,
    key_stdin: bool,
    base_url: str,
    model: str | None,
    no_test: bool,
    remove: str | None,
) -> int:
    """Set up a provider: choose it, paste its key, test it, and choose the default model.

    The key is stored in shoal/credentials.json under Shoal's home, readable only by you. It is not
    passed to the agents' tools. Environment variables take precedence over stored keys.
    """
    from shoal.app.settings.settings import load_settings

    settings = load_settings(cwd=Path.cwd().resolve())
    if remove is not None:
        return _remove_credentials(settings, cast("ProviderChoice", remove))
    is_interactive = not key_stdin and sys.stdin.isatty() and sys.stdout.isatty()
    if provider is None:
        if not is_interactive:
            raise click.UsageError(
                f"Specify the provider: --provider {'|'.join(PROVIDER_CHOICES)}, and --key-stdin for its key."
            )
        provider = _choose_provider()
    setup_request = _ask_for_provider_setup(
        cast("ProviderChoice", provider), base_url, key_stdin=key_stdin, interactive=is_interactive
    )
    return _apply_provider_setup(
        settings, setup_request, model, interactive=is_interactive, run_test=not no_test
    )


def offer_model_setup(options: Options) -> None:
    """Offer to set up a model at the start of an interactive session, if none is configured."""
    from shoal.app.settings.settings import load_settings

    cwd = (options.cwd or Path.cwd()).expanduser().resolve()
    settings = load_settings(cwd=cwd, given=options.settings)
    if (
        options.model is not None
        or settings.models.main is not None
        or not asyncio.run(_has_no_configured_model(settings))
    ):
        return
    click.echo("No model is configured yet.")
    if click.confirm("Set one up now?", default=True):
        _apply_provider_setup(
            settings,
            _ask_for_provider_setup(
                cast("ProviderChoice", _choose_provider()), "", key_stdin=False, interactive=True
            ),
            None,
        )


async def _has_no_configured_model(settings: Settings) -> bool:
    from shoal.app.models.model_choice import choose_model
    from shoal.core.clock import SystemClock
    from shoal.core.errors import NoModelConfigured, ShoalError
    from shoal.core.ids import IdGenerator

    try:
        model = await choose_model(None, settings, SystemClock(), IdGenerator().random)
    except NoModelConfigured:
        return True
    except ShoalError:
        return False
    await model.aclose()
    return False


def _choose_provider() -> str:
    for number, (name, description) in enumerate(PROVIDER_CHOICES.items(), 1):
        click.echo(f"  {number}  {name:<10}  {description}")
    names = list(PROVIDER_CHOICES)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    answer: str = click.prompt(
        "Which provider", type=click.Choice([*numbers, *names]), show_choices=False, default="1"
    )
    return names[int(answer) - 1] if answer.isdigit() else answer


def _ask_for_provider_setup(
    choice: ProviderChoice, base_url: str, *, key_stdin: bool, interactive: bool
) -> ProviderSetup:
    from shoal.app.models.provider_setup import ProviderSetup

    if choice == "server" and not base_url and interactive:
        base_url = click.prompt("Its URL, such as http://localhost:8000/v1")
    key = ""
    if key_stdin:
        key = sys.stdin.read().strip()
    elif interactive and choice not in _KEYLESS_PROVIDERS:
        is_key_optional = choice == "server" or bool(base_url)
        key_prompt = (
            "Its key (not shown; Enter for none)" if is_key_optional else "Paste the key (it is not shown)"
        )
        key = click.prompt(
            key_prompt, hide_input=True, default="" if is_key_optional else None, show_default=False
        )
    return ProviderSetup(choice=choice, key=key, base_url=base_url)


def _apply_provider_setup(
    settings: Settings,
    setup_request: ProviderSetup,
    model: str | None,
    *,
    interactive: bool = True,
    run_test: bool = True,
) -> int:
    from shoal.app.models import provider_setup
    from shoal.stores.files.home.credential_file import get_credentials_path

    new_settings = provider_setup.apply_provider_setup(settings, setup_request)
    name = provider_setup.qualify_model_name(
        model or _choose_default_model(new_settings, setup_request, interactive=interactive), setup_request
    )
    is_usable = not run_test or _probe_model_and_report(new_settings, name)
    if not is_usable and not (interactive and click.confirm("Store it anyway?", default=False)):
        click.echo("Nothing was stored.")
        return exit_codes.ERROR
    provider_setup.save_provider_setup(settings, setup_request, name)
    click.echo(
        f"Stored in {strip_terminal_codes(str(get_credentials_path(settings.home)))}, readable only by you."
    )
    if name is not None:
        click.echo(f"Default model: {strip_terminal_codes(name)}")
    for variable in provider_setup.find_overriding_variables(settings, setup_request.provider):
        click.echo(
            f"The environment variable {variable} is set and takes precedence. Unset it to use the stored "
            "key."
        )
    return exit_codes.OK


def _probe_model_and_report(settings: Settings, name: str | None) -> bool:
    from shoal.app.models.model_probe import probe_model
    from shoal.core.clock import SystemClock
    from shoal.core.errors import ShoalError
    from shoal.surfaces.cli.model_commands import format_probe_result
    from shoal.surfaces.terminal.text_styles import has_colours
    from shoal.surfaces.terminal.user_messages import explain_error, print_user_message

    click.echo("Testing it with a short request …")
    try:
        probe_result = asyncio.run(probe_model(name, settings, SystemClock()))
    except ShoalError as error:
        print_user_message(settings.secret_redactor.redact_text(explain_error(error)))
        return False
    for line in format_probe_result(probe_result, colours=has_colours(sys.stdout)):
        click.echo(line)
    return True


def _choose_default_model(
    settings: Settings, setup_request: ProviderSetup, *, interactive: bool
) -> str | None:
    """Return the model to use if none is named; None leaves the choice to discovery."""
    from shoal.app.models import provider_setup

    default_model = provider_setup.DEFAULT_MODELS.get(setup_request.choice)
    if default_model is None:
        names: Sequence[str] = asyncio.run(provider_setup.list_self_hosted_models(settings))
        for name in names[:20]:
            click.echo(f"  {strip_terminal_codes(name)}")
        default_model = names[0] if names else None
    if not interactive:
        return default_model
    answer: str = click.prompt("Default model", default=default_model)
    return answer


def _remove_credentials(settings: Settings, choice: ProviderChoice) -> int:
    from shoal.app.models import provider_setup

    if provider_setup.remove_provider_setup(settings, choice):
        click.echo(f"Removed the stored key for {choice}. If the key leaked, revoke it at the provider.")
        return exit_codes.OK
    click.echo(f"Nothing is stored for {choice}.")
    return exit_codes.OK
