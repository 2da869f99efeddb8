"""`shoal models` commands: list the models, and test one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import format_token_count, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, apply_style, has_colours

if TYPE_CHECKING:
    from shoal.app.models.model_probe import ModelProbeResult
    from shoal.app.reports.model_report import ModelProviderReportRow, ModelReport, ModelReportRow
    from shoal.core.errors import ShoalError

_JSON_ERROR_NAMES = {
    "NoModelConfigured": "NoModel",
    "StateFileError": "StoreError",
    "TransientModelError": "Transient",
    "BudgetExhausted": "BudgetSpent",
}
"""Names that programs expect, for classes that are named differently."""


@click.group("models")
def model_commands() -> None:
    """List the available models, and test one."""


@model_commands.command("ls", short_help="List providers and models, with prices.")
@click.option("--all", "everything", is_flag=True, help="Include models from providers without a key.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def list_models(*, everything: bool, settings: str | None, as_json: bool) -> int:
    """List providers and models: API keys found, names, prices per million tokens, and context windows.

    Shoal asks configured providers for their models and waits at most 2 seconds.
    """
    from shoal.app.reports.model_report import build_model_report
    from shoal.app.settings.settings import load_settings

    view = asyncio.run(build_model_report(load_settings(cwd=Path.cwd().resolve(), given=settings)))
    if as_json:
        print_json(view)
        return exit_codes.OK
    for line in format_model_report(view, everything=everything, colours=has_colours(sys.stdout)):
        click.echo(line)
    return exit_codes.OK


@model_commands.command("test", short_help="Send a short test request to a model.")
@click.argument("name", required=False)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def run_model_test(*, name: str | None, settings: str | None, as_json: bool) -> int:
    """Test a model (default: the configured model) with a short request, which may cost a little. The exit
    code is 1 if the model does not answer.
    """
    from shoal.app.models.model_probe import probe_model
    from shoal.app.settings.settings import load_settings
    from shoal.core.clock import SystemClock
    from shoal.core.errors import ShoalError
    from shoal.surfaces.terminal.user_messages import explain_error, print_user_message

    loaded_settings = load_settings(cwd=Path.cwd().resolve(), given=settings)
    try:
        probe_result = asyncio.run(probe_model(name, loaded_settings, SystemClock()))
    except ShoalError as error:
        explanation = loaded_settings.secret_redactor.redact_text(explain_error(error))
        if as_json:
            print_json({"ok": False, "error": _get_json_error_name(error), "message": explanation})
        else:
            print_user_message(explanation)
        return exit_codes.ERROR
    if as_json:
        print_json({"ok": True, "trial": probe_result})
    else:
        for line in format_probe_result(probe_result, colours=has_colours(sys.stdout)):
            click.echo(line)
    return exit_codes.OK


def format_probe_result(probe: ModelProbeResult, *, colours: bool) -> Iterator[str]:
    name = apply_style(f"{probe.provider}:{probe.model}", BOLD, colours=colours)
    other = f" (as {strip_terminal_codes(probe.answered_as)})" if probe.answered_as != probe.model else ""
    yield f"{name} {apply_style('answers', GREEN, colours=colours)}{other}"
    yield f"  {'supports streaming' if probe.streamed else 'does not stream'}, and " + (
        "calls tools correctly"
        if probe.called
        else "did not call the tool as requested, so it is of little use for agents"
    )
    attempts_note = f", after {probe.attempts} attempts" if probe.attempts > 1 else ""
    yield (
        f"  first token after {probe.first_seconds:.1f} s, complete after {probe.seconds:.1f} "
        f"s{attempts_note}"
    )
    price = "price unknown" if probe.usd is None else f"${probe.usd:.6f}"
    yield f"  {format_token_count(probe.usage.total_tokens)} tokens, {price}"


def format_model_report(view: ModelReport, *, everything: bool, colours: bool) -> Iterator[str]:
    yield apply_style("providers", BOLD, colours=colours)
    for provider in view.providers:
        name = apply_style(f"{provider.name:<10}", GREEN if provider.configured else DIM, colours=colours)
        yield f"  {name}  {_format_provider(provider)}"
    yield ""
    yield apply_style("models", BOLD, colours=colours)
    rows = [row for row in view.models if everything or row.configured or row.default]
    if not rows:
        yield (
            "  No model is configured yet. Set one up: shoal setup. List all known models: shoal models ls "
            "--all"
        )
        return
    width = max(len(f"{row.provider}:{row.id}") for row in rows)
    for row in rows:
        yield "  " + _format_model_row(row, width, colours=colours)
    unlisted_count = len(view.models) - len(rows)
    if unlisted_count:
        yield apply_style(
            f"  and {unlisted_count} more from providers without a key (--all lists them)",
            DIM,
            colours=colours,
        )
    if view.default:
        yield f"default: {strip_terminal_codes(view.default)} ({strip_terminal_codes(view.default_origin)})"


def _format_provider(provider: ModelProviderReportRow) -> str:
    address = strip_terminal_codes(provider.address)
    if not provider.configured:
        unavailable_reason = f"no key ({provider.key_variable})" if provider.key_variable else "no response"
        return f"{unavailable_reason}, {address}"
    key = f"key from {strip_terminal_codes(provider.key)}" if provider.key else "no key"
    offer = "did not list its models" if provider.offered is None else f"offers {len(provider.offered)}"
    return f"{key}, {address}, {offer}"


def _format_model_row(row: ModelReportRow, width: int, *, colours: bool) -> str:
    name = strip_terminal_codes(f"{row.provider}:{row.id}")
    styled_name = (
        apply_style(f"{name:<{width}}", BOLD, colours=colours) if row.default else f"{name:<{width}}"
    )
    price = "price unknown"
    if row.input is not None and row.output is not None:
        price = f"${row.input:g} in ${row.output:g} out"
    notes = [*row.aliases, *(["default"] if row.default else ())]
    if row.offered is False:
        notes.append("not offered")
    return f"{styled_name}  {row.window // 1000:>5}k  {price:<22}  {', '.join(notes)}".rstrip()


def _get_json_error_name(error: ShoalError) -> str:
    name = type(error).__name__
    return _JSON_ERROR_NAMES.get(name, name)
