"""`shoal web` command: serve a view of this home's runs to a browser."""

from __future__ import annotations

import asyncio
import secrets
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json

if TYPE_CHECKING:
    from shoal.app.run_access.stored_runs import StoredRuns
    from shoal.surfaces.web.web_server import WebServerAddress

_MIN_TOKEN_LENGTH = 16
LOOPBACK = "127.0.0.1"


_DATABASE_NOTE = (
    "The web view shows the runs in the database. It can answer their questions, and control runs that "
    "were started on this machine with this home."
)


@click.command("web")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Use this port; default: a free one.")
@click.option(
    "--host", default=LOOPBACK, metavar="HOST", help="Listen on this address; default: only this machine."
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="SHOAL_WEB_TOKEN",
    help="Access token, at least 16 characters; default: a random one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the URL as JSON.")
def web_command(*, port: int, host: str, token: str | None, opens: bool, as_json: bool) -> int:
    """Show every run in this home in a browser: team, board, mail, questions, cost and replay.

    Stop the server with Ctrl-C. Only this machine can reach it, and only with the token in the URL. From
    another machine or a phone, use ssh: ssh -L 8080:localhost:PORT HOST.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        from shoal.core.errors import MissingPackageExtra

        raise MissingPackageExtra("The web view", "web")
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.surfaces.web.web_server import WebServerAddress, is_loopback_host

    if token is None and not is_loopback_host(host):
        raise click.UsageError(
            f"With --host {host}, other machines can reach the server, so you must set --token."
        )
    if token is not None and len(token) < _MIN_TOKEN_LENGTH:
        raise click.UsageError(f"The token must have at least {_MIN_TOKEN_LENGTH} characters.")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise click.UsageError(
            "The token may contain only ASCII letters, digits and symbols because it is sent in a cookie."
        )
    home = find_process_shoal_home()
    if home.exists() and not home.is_dir():
        raise click.ClickException(
            f"{home} is not a directory, so there are no runs to show. Set SHOAL_HOME=DIRECTORY."
        )
    ticket = secrets.token_urlsafe(24) if opens else ""
    address = WebServerAddress(host=host, port=port, token=token or secrets.token_urlsafe(24), ticket=ticket)
    from shoal.app.run_access.stored_runs import open_stored_runs, run_with_current_copies

    runs = open_stored_runs(home)
    if runs.copies is not None:
        click.echo(_DATABASE_NOTE, err=True)
    work = _serve_web_until_signal(runs, address, open_browser=opens, as_json=as_json)
    asyncio.run(run_with_current_copies(runs.copies, work))
    return exit_codes.OK


async def _serve_web_until_signal(
    runs: StoredRuns, endpoint: WebServerAddress, *, open_browser: bool, as_json: bool
) -> None:
    from shoal.surfaces.web.web_server import serve_web_view

    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal that our parent ignored (nohup, a shell's background job) stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop_event.set)

    def announce_address_and_open_browser(address: str) -> None:
        if as_json:
            print_json({"url": address, "token": endpoint.token})
        else:
            click.echo(f"The web view is at {address}\nPress Ctrl-C to stop it; the runs continue.")
        if open_browser:
            # Process arguments are visible to every user of the machine, so the token stays out of them.
            click.launch(f"{address.partition('?')[0]}?ticket={endpoint.ticket}")

    await serve_web_view(runs, endpoint, on_ready=announce_address_and_open_browser, ended=stop_event)
