"""Whatever real bash runs, the analysis saw: over the everyday corpus and over command lines at random."""

from __future__ import annotations

import pytest
from corpora import harmless
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command_lines import soup, well_formed
from real_bash import told, unseen
from shoal.policy.shell.analysis import UNKNOWN_PATH, analysed

_BATCHES = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


def _check(commands, place):
    """Those with trouble are asked anyway; of the others nothing may run or be written unseen."""
    judged = [(command, analysed(command)) for command in commands]
    judged = [(command, analysis) for command, analysis in judged if analysis.trouble is None]
    bash = told([command for command, _ in judged], place)
    for (command, analysis), ran in zip(judged, bash.ran, strict=True):
        assert unseen(analysis, ran) == [], command
    writes = {
        path.rpartition("/")[2] for _, analysis in judged for part in analysis.parts for path in part.writes
    }
    assert UNKNOWN_PATH.rpartition("/")[2] in writes or bash.written <= writes
    return len(judged)


@pytest.mark.needs("bash")
def test_bash_runs_nothing_in_the_everyday_corpus_that_was_not_seen(tmp_path):
    commands = harmless()
    assert _check(commands, tmp_path) == len(commands)


@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@_BATCHES
@given(st.lists(well_formed, min_size=30, max_size=60))
def test_bash_runs_nothing_in_a_well_formed_line_that_was_not_seen(tmp_path, commands):
    _check(commands, tmp_path)


@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@_BATCHES
@given(st.lists(soup, min_size=30, max_size=60))
def test_bash_runs_nothing_in_a_soup_of_signs_that_was_not_seen(tmp_path, commands):
    _check(commands, tmp_path)


def test_most_well_formed_lines_are_judged():
    judged: list[bool] = []

    @settings(max_examples=100, deadline=None, database=None)
    @given(well_formed)
    def judge(command):
        judged.append(analysed(command).trouble is None)

    judge()
    assert sum(judged) >= 0.6 * len(judged)
