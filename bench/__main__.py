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
    agents,
    board,
    clients,
    hooks,
    loop,
    mail,
    over_http,
    policy,
    report,
    sandboxed,
    standings,
    start,
    teams,
    web,
)
from bench.compared import ONCE, QUICK, Size, compare
from bench.figures import Section, table
from bench.peers.asking import answer, subject
from bench.peers.environments import PEERS, ready

_QUICK_HTTP = over_http.Size(rounds=10, repeats=3, agents=50, agents_rounds=2, agents_repeats=1)
_QUICK_BOARD = board.Size(tasks=300, listed=2_000, repeats=1)
_QUICK_MAIL = mail.Size(posts=400, samples=20, histories=(10, 1_000), plain_samples=2, wakes=40)
_QUICK_AGENTS = agents.Size(agents=200, in_a_row=50, idle=200, repeats=2, reporting_repeats=3)
_QUICK_TEAMS = teams.Size(spawn_repeats=2, wakes=40, idle=100, members=100, tasks=1_000)
_QUICK_LOOP = loop.Size(long=500, repeats=5, long_repeats=2)

BENCHES: dict[str, Callable[[bool], list[Section]]] = {
    "loop": lambda quick: [loop.measure(_QUICK_LOOP if quick else loop.Size())],
    "agents": lambda quick: agents.measure(_QUICK_AGENTS if quick else agents.Size()),
    "http": lambda quick: [over_http.measure(_QUICK_HTTP if quick else over_http.Size())],
    "board": lambda quick: [board.measure(_QUICK_BOARD if quick else board.Size())],
    "mail": lambda quick: mail.measure(_QUICK_MAIL if quick else mail.Size()),
    "teams": lambda quick: teams.measure(_QUICK_TEAMS if quick else teams.Size()),
    "policy": lambda quick: [
        policy.measure(policy.Size(calls=300, repeats=3) if quick else policy.Size()),
        sandboxed.measure(sandboxed.Size(rounds=10) if quick else sandboxed.Size()),
    ],
    "hooks": lambda quick: hooks.measure(
        hooks.Size(calls=2_000, repeats=3, rounds=15) if quick else hooks.Size()
    ),
    "start": lambda quick: start.measure(start.Size(repeats=3) if quick else start.Size()),
    "web": lambda quick: web.measure(web.Size(seconds=3, runs=200) if quick else web.Size()),
    "clients": lambda quick: clients.measure(_QUICK_HTTP if quick else over_http.Size()),
}
USUAL = ("loop", "agents", "http", "board", "mail", "teams", "policy", "hooks", "start", "web")


def main(argv: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(argv)
    if given.import_times:
        print(start.import_times())
    elif given.only or given.details:
        _details(given)
    else:
        _compare(given)


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look, not a measurement")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--import-times", action="store_true", help="where the time of the imports goes")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _compare(given: argparse.Namespace) -> None:
    wanted = () if given.no_peers else [peer for peer in PEERS if not given.peer or peer.name in given.peer]
    environments = ready(wanted, make=True, say=_say)
    if given.peers:
        for environment in environments:
            print(f"{environment.peer.name}: {environment.missing or environment.python}")
        return
    peers = [subject(environment) for environment in environments]
    before, since = os.getloadavg()[0], time.monotonic()
    size = QUICK if given.quick else ONCE if given.once else Size()
    comparison = compare(size, peers, lambda what: _say(f"asking about {what}"))
    where = report.machine(before, time.monotonic() - since, once=given.once)
    versions = {peer.name: answer(peer, "versions") for peer in peers if not peer.missing}
    if given.keep:
        report.PAGE.write_text(report.page(comparison, versions, where))
    if given.json:
        sys.stdout.write(report.as_json(comparison, versions, where) + "\n")
        return
    print(*where.lines(), "", *standings.text(comparison.groups), "", *report.missing(comparison), sep="\n")
    print(standings.verdict(comparison.groups))


def _details(given: argparse.Namespace) -> None:
    since = time.monotonic()
    sections: list[Section] = []
    if not given.json:
        print(_machine())
        print("CPU counts more than wall, and the ratio to the bare code more than either.")
    for name in given.only or USUAL:
        for section in BENCHES[name](given.quick):
            sections.append(section)
            if not given.json:
                print("", *table(section), sep="\n", flush=True)
    if given.json:
        sys.stdout.write(as_json(sections) + "\n")
    else:
        print(f"\n{_verdict(sections)} {time.monotonic() - since:.0f} s.")


def _machine() -> str:
    return (
        f"Shoal bench: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def _verdict(sections: Sequence[Section]) -> str:
    judged = [figure for section in sections for figure in section.figures if figure.target is not None]
    missed = [figure.name.strip() for figure in judged if not figure.ok]
    if not judged:
        return "No targets here."
    met = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return f"{met}; not: {', '.join(missed)}." if missed else f"{met}."


def as_json(sections: Sequence[Section]) -> str:
    report = {
        "machine": _machine(),
        "sections": [
            {
                **msgspec.to_builtins(section),
                "figures": [
                    {**msgspec.to_builtins(figure), "ratio": figure.ratio, "ok": figure.ok}
                    for figure in section.figures
                ],
            }
            for section in sections
        ],
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


if __name__ == "__main__":
    main()
