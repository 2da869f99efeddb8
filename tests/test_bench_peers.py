"""Other libraries beside Shoal: who is asked, what is shown, and who is named as missing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def bench_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def make_row(**cells: float):
    from bench.comparison_table import ComparisonRow

    return ComparisonRow(name="a round", unit="µs", cells=cells)


def test_a_row_has_the_best_peer_the_ratio_and_the_rank():
    standing = make_row(Shoal=30.0, bare=10.0, slow=200.0, quick=100.0)
    assert (standing.best, standing.ratio, standing.place, standing.is_met) == ("quick", 0.3, 1, True)
    assert msgspec.structs.replace(standing, target=0.3).is_met
    assert not msgspec.structs.replace(standing, target=0.2).is_met


def test_a_peer_slightly_ahead_shares_the_rank_and_one_further_ahead_does_not():
    assert make_row(Shoal=100.0, near=96.0).place == 1
    assert make_row(Shoal=100.0, ahead=90.0, near=96.0, behind=300.0).place == 2
    assert make_row(Shoal=100.0, ahead=90.0).is_met is False


def test_without_peers_only_the_targets_are_checked():
    from bench.comparison_table import RowGroup, summarize_groups

    alone = make_row(Shoal=30.0, bare=10.0)
    assert (alone.best, alone.ratio, alone.place, alone.is_met) == (None, None, None, None)
    kept = msgspec.structs.replace(alone, limit=40.0)
    broken = msgspec.structs.replace(alone, name="another", limit=20.0)
    assert (kept.is_met, broken.is_met) == (True, False)
    said = summarize_groups([RowGroup(name="all", rows=[alone, kept, broken])])
    assert said == "Shoal is 1 of 2 figures meet their goal; not: another (≤ 20.0)."


def test_the_table_has_a_column_for_each_peer_and_lists_missed_targets():
    from bench.comparison_table import ComparisonRow, RowGroup, format_markdown, format_text

    groups = [
        RowGroup(name="Loop", rows=[make_row(Shoal=30.0, bare=10.0, one=100.0)]),
        RowGroup(name="Own", rows=[ComparisonRow(name="mail", unit="ms", cells={"Shoal": 2.0}, limit=1.0)]),
    ]
    printed = list(format_text(groups))
    assert printed[0].split() == ["Shoal", "bare", "one", "to", "best", "place", "wanted"]
    assert printed[2].split() == ["a", "round", "µs", "30.0", "10.0", "100", "0.30×", "1", "first", "ok"]
    assert printed[4].split() == ["mail", "ms", "2.00", "–", "–", "≤", "1.00", "not", "met"]
    lines = list(format_markdown(groups))
    assert len({line.count("|") for line in lines}) == 1
    assert "| a round | µs | 30.0 | 10.0 | 100 | 0.30× | 1 | first | ok |" in lines


@pytest.fixture
def stranger():
    """A library that is none: the bare loop under another name."""
    from bench.peers.peer_runner import BARE

    return msgspec.structs.replace(BARE, name="stranger")


@pytest.mark.exhaustive
def test_every_peer_answers_every_question_or_is_named_with_the_reason(stranger, tmp_path):
    from bench.comparison import QUICK_SIZE, ask_libraries
    from bench.report import format_missing, read_machine, render_page

    absent = msgspec.structs.replace(stranger, name="absent", missing="pip says no")
    broken = msgspec.structs.replace(stranger, name="broken", script="nothing", imports="import nothing")
    comparison = ask_libraries(QUICK_SIZE, [stranger, absent, broken])
    rows = [make_row for group in comparison.groups for make_row in group.rows]
    assert len(rows) >= 15
    for each in rows:
        assert set(each.cells) == {"Shoal", "bare", "stranger"}, each.name
        assert each.place is not None
    told = "\n".join(format_missing(comparison))
    assert "absent: pip says no" in told
    assert "broken, the loop: " in told
    assert "with_nothing.py" in told
    assert "ModuleNotFoundError" in told
    shown = render_page(comparison, {"stranger": {"strange": "1.0"}}, read_machine(0.5, 60.0))
    for part in ("cores", "| a tool round, of 5 |", "- stranger: strange 1.0", "Not in the table: absent"):
        assert part in shown
    assert "{" not in shown


def test_rows_that_are_measured_again_replace_those_of_the_page() -> None:
    from bench.comparison_table import ComparisonRow
    from bench.report import PAGE, read_machine, replace_rows

    page = PAGE.read_text()
    names = re.findall(r"^\| (workflow: .+?) \|", page, re.MULTILINE)
    assert len(names) >= 3
    rows = [ComparisonRow(name=name, unit="u", cells={"Shoal": 7.0}, limit=5.0) for name in names]
    facts = read_machine(0.5, 60.0)
    changed = replace_rows(page, "workflow", rows, facts)
    for name in names:
        assert re.findall(rf"^\| {re.escape(name)} \| (.+) \|$", changed, re.MULTILINE) == [
            "u | 7.00 | – | – | – | – | – | – | – |  |  | ≤ 5.00 | not met"
        ]
    assert changed.count(f'the rows about "workflow", on {facts.date}, {facts.cores} cores (') == 1
    met, known = map(int, re.findall(r"(\d+) of (\d+) figures meet their goal", page)[0])
    assert f"{met - len(names)} of {known} figures meet their goal" in changed
    assert replace_rows(changed, "workflow", rows, facts) == changed
    others = [line for line in page.splitlines() if "workflow" not in line and "figures meet" not in line]
    assert [line for line in changed.splitlines() if line in others] == others
    unknown = [ComparisonRow(name="unknown", unit="u", cells={"Shoal": 1.0})]
    with pytest.raises(ValueError, match="has 0 rows named 'unknown'"):
        replace_rows(page, "workflow", unknown, facts)


def test_a_library_that_cannot_be_installed_is_named_and_an_installed_one_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from bench.peers import environments
    from bench.peers.environments import PeerLibrary, prepare_environments

    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    nowhere = PeerLibrary(name="nowhere", requirements=(str(tmp_path / "no-such-package"),))
    there = PeerLibrary(name="there", requirements=("something>=1",))
    said: list[str] = []
    (unmade,) = prepare_environments([nowhere], create_missing=False, print_progress=said.append)
    assert "no environment" in unmade.missing
    (unmade,) = prepare_environments([nowhere], create_missing=True, print_progress=said.append)
    assert "could not be made" in unmade.missing
    assert "no-such-package" in unmade.missing
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "needs").write_text(environments.compute_fingerprint(there))
    (made,) = prepare_environments([there], create_missing=True, print_progress=said.append)
    assert not made.missing
    assert len(said) == 1


def test_every_peer_has_its_scripts_and_they_do_not_import_shoal():
    from bench.peers.environments import PEERS, PeerEnvironment
    from bench.peers.peer_runner import make_subject

    for peer in PEERS:
        who = make_subject(PeerEnvironment(peer=peer, python=Path(sys.executable)))
        for kind in ("with", "start"):
            source = (ROOT / "bench" / "peers" / f"{kind}_{who.script}.py").read_text()
            assert "shoal" not in source.lower()
            assert "import bench" not in source
            assert "from bench" not in source


def test_the_table_is_available_as_json_without_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from bench import __main__ as program
    from bench.comparison import Comparison
    from bench.comparison_table import RowGroup

    groups = [RowGroup(name="Loop", rows=[make_row(Shoal=30.0, bare=10.0)])]
    monkeypatch.setattr(program, "compare_libraries", lambda *_: Comparison(groups=groups))
    program.main(["--no-peers", "--quick", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["groups"][0]["rows"][0]["cells"] == {"Shoal": 30.0, "bare": 10.0}
    assert told["machine"]["cores"] >= 1
