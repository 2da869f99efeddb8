"""`python -m bench`: run the benches and print their tables."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from bench import (
    agent_bench,
    board_bench,
    comparison_table,
    hook_bench,
    http_bench,
    http_client_bench,
    loop_bench,
    mail_bench,
    permission_bench,
    report,
    sandbox_bench,
    start_bench,
    store_bench,
    team_bench,
    web_bench,
)
from bench.comparison import (
    ONCE_SIZE,
    OWN_TOPICS,
    QUICK_SIZE,
    ComparisonSize,
    compare_libraries,
    measure_own_rows,
)
from bench.figures import Section, format_section
from bench.peers.environments import PEERS, prepare_environments
from bench.peers.peer_runner import ask_subject, make_subject

_QUICK_HTTP = http_bench.HttpBenchSize(rounds=10, repeats=3, agents=50, agents_rounds=2, agents_repeats=1)
_QUICK_BOARD = board_bench.BoardBenchSize(tasks=300, listed=2_000, repeats=1)
_QUICK_MAIL = mail_bench.MailBenchSize(
    posts=400, samples=20, histories=(10, 1_000), plain_samples=2, wakes=40
)
_QUICK_AGENTS = agent_bench.AgentBenchSize(agents=200, in_a_row=50, idle=200, repeats=2, reporting_repeats=3)
_QUICK_TEAMS = team_bench.TeamBenchSize(spawn_repeats=2, wakes=40, idle=100, members=100, tasks=1_000)
_QUICK_LOOP = loop_bench.LoopBenchSize(long=500, repeats=5, long_repeats=2)

BENCHES: dict[str, Callable[[bool], list[Section]]] = {
    "loop": lambda quick: [loop_bench.measure_loop(_QUICK_LOOP if quick else loop_bench.LoopBenchSize())],
    "agents": lambda quick: agent_bench.measure_agents(
        _QUICK_AGENTS if quick else agent_bench.AgentBenchSize()
    ),
    "http": lambda quick: [http_bench.measure_http(_QUICK_HTTP if quick else http_bench.HttpBenchSize())],
    "board": lambda quick: [
        board_bench.measure_board(_QUICK_BOARD if quick else board_bench.BoardBenchSize())
    ],
    "mail": lambda quick: mail_bench.measure_mail(_QUICK_MAIL if quick else mail_bench.MailBenchSize()),
    "teams": lambda quick: team_bench.measure_teams(_QUICK_TEAMS if quick else team_bench.TeamBenchSize()),
    "policy": lambda quick: [
        permission_bench.measure_permissions(
            permission_bench.PermissionBenchSize(calls=300, repeats=3)
            if quick
            else permission_bench.PermissionBenchSize()
        ),
        sandbox_bench.measure_sandbox(
            sandbox_bench.SandboxBenchSize(rounds=10) if quick else sandbox_bench.SandboxBenchSize()
        ),
    ],
    "hooks": lambda quick: hook_bench.measure_hooks(
        hook_bench.HookBenchSize(calls=2_000, repeats=3, rounds=15) if quick else hook_bench.HookBenchSize()
    ),
    "start": lambda quick: start_bench.measure_start(
        start_bench.StartBenchSize(repeats=3) if quick else start_bench.StartBenchSize()
    ),
    "web": lambda quick: web_bench.measure_web(
        web_bench.WebBenchSize(seconds=3, runs=200) if quick else web_bench.WebBenchSize()
    ),
    # Needs a PostgreSQL server program, so it runs only if it is named.
    "store": lambda quick: [
        store_bench.measure_store(
            store_bench.StoreBenchSize(operations=40, wakes=20, boards=(200, 2_000), claims=40)
            if quick
            else store_bench.StoreBenchSize()
        )
    ],
    "clients": lambda quick: http_client_bench.measure_clients(
        _QUICK_HTTP if quick else http_bench.HttpBenchSize()
    ),
}
DEFAULT_BENCHES = ("loop", "agents", "http", "board", "mail", "teams", "policy", "hooks", "start", "web")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _create_parser().parse_args(argv)
    if arguments.import_times:
        print(start_bench.list_import_times())
    elif arguments.rows:
        _run_rows(arguments)
    elif arguments.only or arguments.details:
        _run_details(arguments)
    else:
        _run_comparison(arguments)


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Shoal beside a bare loop and beside other libraries."
    )
    parser.add_argument("--keep", action="store_true", help="write the table to docs/bench.md")
    parser.add_argument(
        "--once", action="store_true", help="ask everyone once: half the time, rougher figures"
    )
    parser.add_argument("--no-peers", action="store_true", help="ask no other library")
    parser.add_argument("--peer", choices=[peer.name for peer in PEERS], action="append", help="only these")
    parser.add_argument("--peers", action="store_true", help="only make the environments of other libraries")
    parser.add_argument("--only", choices=BENCHES, action="append", help="Shoal's own benches, in detail")
    parser.add_argument("--details", action="store_true", help="all of Shoal's own benches, in detail")
    parser.add_argument("--rows", choices=OWN_TOPICS, help="measure only these rows of Shoal's own again")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look, not a measurement")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--import-times", action="store_true", help="where the time of the imports goes")
    return parser


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_comparison(arguments: argparse.Namespace) -> None:
    requested = (
        ()
        if arguments.no_peers
        else [peer for peer in PEERS if not arguments.peer or peer.name in arguments.peer]
    )
    environments = prepare_environments(requested, create_missing=True, print_progress=_print_progress)
    if arguments.peers:
        for environment in environments:
            print(f"{environment.peer.name}: {environment.missing or environment.python}")
        return
    peers = [make_subject(environment) for environment in environments]
    before, started = os.getloadavg()[0], time.monotonic()
    size = QUICK_SIZE if arguments.quick else ONCE_SIZE if arguments.once else ComparisonSize()
    comparison = compare_libraries(size, peers, lambda what: _print_progress(f"asking about {what}"))
    machine = report.read_machine(before, time.monotonic() - started, once=arguments.once)
    versions = {peer.name: ask_subject(peer, "versions") for peer in peers if not peer.missing}
    if arguments.keep:
        report.PAGE.write_text(report.render_page(comparison, versions, machine))
    if arguments.json:
        sys.stdout.write(report.encode_report(comparison, versions, machine) + "\n")
        return
    print(
        *machine.format_lines(),
        "",
        *comparison_table.format_text(comparison.groups),
        "",
        *report.format_missing(comparison),
        sep="\n",
    )
    print(comparison_table.summarize_groups(comparison.groups))


def _run_rows(arguments: argparse.Namespace) -> None:
    before, started = os.getloadavg()[0], time.monotonic()
    size = QUICK_SIZE if arguments.quick else ComparisonSize()
    rows = measure_own_rows(size, [arguments.rows])
    machine = report.read_machine(before, time.monotonic() - started)
    if arguments.keep:
        page = report.replace_rows(report.PAGE.read_text(), arguments.rows, rows, machine)
        report.PAGE.write_text(page)
    group = comparison_table.RowGroup(name="Shoal's own", rows=rows)
    print(*machine.format_lines(), "", *comparison_table.format_text([group]), sep="\n")


def _run_details(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    sections: list[Section] = []
    if not arguments.json:
        print(_describe_machine())
        print("CPU counts more than wall, and the ratio to the bare code more than either.")
    for name in arguments.only or DEFAULT_BENCHES:
        for section in BENCHES[name](arguments.quick):
            sections.append(section)
            if not arguments.json:
                print("", *format_section(section), sep="\n", flush=True)
    if arguments.json:
        sys.stdout.write(encode_sections(sections) + "\n")
    else:
        print(f"\n{_summarize_targets(sections)} {time.monotonic() - started:.0f} s.")


def _describe_machine() -> str:
    return (
        f"Shoal bench: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def _summarize_targets(sections: Sequence[Section]) -> str:
    figures_with_target = [
        figure for section in sections for figure in section.figures if figure.is_met is not None
    ]
    missed = [figure.name.strip() for figure in figures_with_target if not figure.is_met]
    if not figures_with_target:
        return "No targets here."
    met = f"{len(figures_with_target) - len(missed)} of {len(figures_with_target)} targets met"
    return f"{met}; not: {', '.join(missed)}." if missed else f"{met}."


def encode_sections(sections: Sequence[Section]) -> str:
    report = {
        "machine": _describe_machine(),
        "sections": [
            {
                **msgspec.to_builtins(section),
                "figures": [
                    {**msgspec.to_builtins(figure), "ratio": figure.ratio, "ok": figure.is_met}
                    for figure in section.figures
                ],
            }
            for section in sections
        ],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


if __name__ == "__main__":
    main()
