"""`shoal cluster` commands: the machines on which teammates can run."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import format_count_with_noun
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import CliTableCell, debug_option, json_option, print_json, print_table

if TYPE_CHECKING:
    from shoal.app.clusters.cluster_report import ClusterMachine
    from shoal.app.settings.settings import Settings
    from shoal.backends.guarded_processes import GuardedProcessLauncher

_TRIAL_TEXT = """\
A head, two more nodes and a database run on this machine. In another terminal, type:

  export SHOAL_STORE={store}
  shoal --settings '{{"shoal": {{"teammate_mode": "ray", "cluster": {{"address": "{address}"}}}}}}'
  shoal cluster status --address {address}

Press Ctrl-C to stop everything and delete the database."""

_WORD = r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?"
_LABEL_WORD = re.compile(_WORD, re.ASCII)
_LABEL_NAME = re.compile(rf"(?:[\w.-]+/)?{_WORD}", re.ASCII)

address_option = click.option("--address", metavar="HOST:PORT", help="Address of the cluster head.")
host_option = click.option(
    "--host",
    metavar="ADDRESS",
    help="Address at which other machines can reach this one; by default, Ray chooses it.",
)
cpus_option = click.option(
    "--cpus", type=click.FloatRange(min=0), help="Number of CPUs to offer; by default, all of them."
)
gpus_option = click.option(
    "--gpus", type=click.FloatRange(min=0), help="Number of GPUs to offer; by default, all that Ray finds."
)
_LEAST_MEMORY = 1 << 20
memory_option = click.option(
    "--memory", metavar="SIZE", help="Memory to offer, such as 8GB; by default, Ray measures it."
)
label_option = click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Label for this machine; repeatable."
)


@click.group("cluster")
def cluster_commands() -> None:
    """Run teammates on several machines with Ray.

    Choose the cluster with --address or the setting shoal.cluster.address.
    """


@cluster_commands.command("status", short_help="Show the machines and how many teammates they run.")
@address_option
@json_option
@debug_option
def show_cluster_status(*, address: str | None, as_json: bool) -> int:
    """Show the machines in the cluster, and how many teammates run on each machine."""
    machines = _list_machines(address, check=False)
    if as_json:
        print_json(machines)
        return exit_codes.OK
    print_table(
        ("address", "state", "members", "cpus", "gpus", "memory", "labels"),
        [
            (
                CliTableCell(machine.address + (" (head)" if machine.is_head else "")),
                CliTableCell(machine.state),
                CliTableCell(", ".join(machine.members) or "-"),
                CliTableCell(f"{machine.cpus:g}"),
                CliTableCell(f"{machine.gpus:g}"),
                CliTableCell(f"{machine.memory / 2**30:.1f} GiB"),
                CliTableCell(" ".join(f"{name}={value}" for name, value in machine.labels.items())),
            )
            for machine in machines
        ],
    )
    return exit_codes.OK


@cluster_commands.command("doctor", short_help="Check whether each machine has what teammates need.")
@address_option
@json_option
@debug_option
def check_cluster(*, address: str | None, as_json: bool) -> int:
    """Check each machine: Shoal, Python, git, ripgrep, sandbox, model keys and the store."""
    machines = [machine for machine in _list_machines(address, check=True) if machine.state == "alive"]
    count = sum(len(machine.problems) for machine in machines)
    if as_json:
        print_json(machines)
    else:
        for machine in machines:
            versions = f"Shoal {machine.shoal}, Python {machine.python}" if machine.shoal else "unknown"
            click.echo(f"{machine.address} ({versions}): {'' if machine.problems else 'nothing is missing'}")
            for problem in machine.problems:
                click.echo(f"  {problem}")
        found, looked_at = (
            format_count_with_noun(count, "problem"),
            format_count_with_noun(len(machines), "machine"),
        )
        click.echo(f"{found} on {looked_at}.")
    return exit_codes.ERROR if count else exit_codes.OK


@cluster_commands.command("head", short_help="Make this machine the head of a cluster.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=6379, show_default=True, help="Port for the head."
)
@host_option
@cpus_option
@gpus_option
@memory_option
@label_option
@debug_option
def run_head(*, port: int, host: str | None, labels: tuple[str, ...], **offered: Any) -> int:
    """Run the head of a cluster on this machine until you press Ctrl-C.

    A new head at the same address replaces a lost head: machines that run `shoal cluster join` join it.
    """
    from shoal.backends.ray_node import RayNode, RayNodeSpec

    spec = RayNodeSpec(port=port, host=host, labels=_parse_labels(labels), **_parse_offer(**offered))

    async def run(processes: GuardedProcessLauncher) -> None:
        node = RayNode(spec, processes, _create_clock())
        try:
            await node.start()
            _report_at_once(describe_running_head(node.find_address(), port))
            await node.wait()
            click.echo("The head has stopped.", err=True)
        finally:
            await node.stop()

    return _run_until_signal(run)


@cluster_commands.command("join", short_help="Make this machine part of a cluster.")
@click.argument("address", metavar="HOST:PORT")
@host_option
@cpus_option
@gpus_option
@memory_option
@label_option
@debug_option
def run_node(address: str, *, host: str | None, labels: tuple[str, ...], **offered: Any) -> int:
    """Offer this machine to the cluster until you press Ctrl-C.

    It joins again if the head is replaced.
    """
    from shoal.app.clusters.cluster_report import check_head_address
    from shoal.backends.ray_node import RayNodeKeeper, RayNodeSpec
    from shoal.backends.ray_probe import read_cluster_id

    spec = RayNodeSpec(
        address=check_head_address(address),
        host=host,
        labels=_parse_labels(labels),
        **_parse_offer(**offered),
    )

    async def run(processes: GuardedProcessLauncher) -> None:
        keeper = RayNodeKeeper(
            spec, processes, _create_clock(), read_cluster_id=read_cluster_id, report=_report_at_once
        )
        await keeper.run()

    return _run_until_signal(run)


@cluster_commands.command("try", short_help="Start a cluster and a database on this machine.")
@json_option
@debug_option
def try_cluster(*, as_json: bool) -> int:
    """Start a head, two more nodes and a database on this machine, and stop them all on Ctrl-C."""
    from shoal.app.clusters.cluster_trial import open_trial_cluster
    from shoal.stores.store_choice import check_postgres_extra

    check_postgres_extra()

    async def run(processes: GuardedProcessLauncher) -> None:
        home = _load_settings().home
        async with open_trial_cluster(processes, _create_clock(), home=home) as cluster:
            if as_json:
                print_json(cluster)
            else:
                click.echo(_TRIAL_TEXT.format(address=cluster.address, store=cluster.store))
            sys.stdout.flush()
            await asyncio.Event().wait()

    return _run_until_signal(run)


def _list_machines(address: str | None, *, check: bool) -> list[ClusterMachine]:
    from shoal.app.clusters.cluster_report import choose_cluster_address, list_cluster_machines

    settings = _load_settings()
    return list_cluster_machines(settings, choose_cluster_address(settings, address), check=check)


def _load_settings() -> Settings:
    from shoal.app.settings.settings import load_settings

    return load_settings(cwd=Path.cwd())


def describe_running_head(address: str, port: int) -> str:
    """Return what to do next; `address` is the one that Ray gave this machine, or empty if it is unknown."""
    if address.startswith("127.") or address == "::1":
        return (
            f"The head is running, but only at {address}:{port}, which other machines cannot reach. To let "
            "them join, press Ctrl-C and start the head again with --host and an address that they can reach."
        )
    place = f"{address or 'HOST'}:{port}"
    return f"The head is running. On each of the other machines, run: shoal cluster join {place}"


def _parse_offer(*, cpus: float | None, gpus: float | None, memory: str | None) -> dict[str, Any]:
    from shoal.wire.field_parsers import InvalidFrontMatterFieldError
    from shoal.wire.resource_codec import parse_resource_request

    try:
        size = None if memory is None else parse_resource_request({"memory": memory}).memory
    except InvalidFrontMatterFieldError as error:
        raise click.UsageError(f"--{error}") from None  # it starts with the key
    if size is not None and size < _LEAST_MEMORY:
        raise click.UsageError(f"--memory: {memory} is {size} bytes. Add a unit, for example 8GB.")
    return {"cpus": cpus, "gpus": gpus, "memory": size}


def _parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for label in labels:
        name, _, value = label.partition("=")
        if not (_LABEL_NAME.fullmatch(name) and _LABEL_WORD.fullmatch(value)):
            raise click.UsageError(
                f"{label!r} is not a valid label. Use NAME=VALUE. Both begin and end with a letter or a "
                "digit and have at most 63 letters, digits, dots, dashes and underscores."
            )
        parsed[name] = value
    return parsed


def _report_at_once(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _create_clock() -> Any:
    from shoal.core.clock import SystemClock

    return SystemClock()


def _run_until_signal(run: Callable[[GuardedProcessLauncher], Coroutine[Any, Any, None]]) -> int:
    """Run until the end, Ctrl-C or TERM; everything that was started is ended."""
    from shoal.backends.guarded_processes import GuardedProcessLauncher
    from shoal.backends.program_directory import remove_abandoned_directories
    from shoal.backends.ray_settings import explain_missing_ray
    from shoal.core.errors import SettingsError
    from shoal.core.task_groups import open_task_group

    if reason := explain_missing_ray():
        raise SettingsError(reason)
    for path in remove_abandoned_directories():
        click.echo(f"Removed {path}, which a killed process left.", err=True)

    async def run_with_signals() -> int:
        processes = GuardedProcessLauncher(_create_clock())
        loop = asyncio.get_running_loop()
        try:
            async with open_task_group() as tasks:
                task = tasks.create_task(run(processes))
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    loop.add_signal_handler(number, task.cancel)
            return exit_codes.OK if task.cancelled() else exit_codes.ERROR  # it ended by itself
        finally:
            await processes.aclose()

    return asyncio.run(run_with_signals())
