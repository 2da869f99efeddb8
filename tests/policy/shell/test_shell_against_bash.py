"""Every command that real bash runs was found by the analysis: everyday corpus and random lines."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bash_trace import find_unanalyzed, trace_commands
from command_corpora import load_harmless
from command_line_strategies import shell_text_fragments, well_formed_commands
from shoal.policy.shell.command_analysis import UNKNOWN_PATH, analyze_shell_command

_BATCHES = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


def _check_against_bash(commands, directory):
    """Check that bash runs and writes only what a complete analysis found, also of lines that are asked."""
    analyzed = [(command, analyze_shell_command(command)) for command in commands]
    analyzed = [(command, analysis) for command, analysis in analyzed if analysis.are_paths_known]
    bash = trace_commands([command for command, _ in analyzed], directory)
    for (command, analysis), ran in zip(analyzed, bash.commands, strict=True):
        assert find_unanalyzed(analysis, ran) == [], command
    writes = {
        path.rpartition("/")[2] for _, analysis in analyzed for part in analysis.parts for path in part.writes
    }
    assert UNKNOWN_PATH.rpartition("/")[2] in writes or bash.files <= writes
    return len(analyzed)


@pytest.mark.needs("bash")
def test_bash_runs_only_analyzed_commands_in_the_everyday_corpus(tmp_path):
    commands = load_harmless()
    assert _check_against_bash(commands, tmp_path) == len(commands)


@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@_BATCHES
@given(st.lists(well_formed_commands, min_size=30, max_size=60))
def test_bash_runs_only_analyzed_commands_in_well_formed_lines(tmp_path, commands):
    _check_against_bash(commands, tmp_path)


@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@_BATCHES
@given(st.lists(shell_text_fragments, min_size=30, max_size=60))
def test_bash_runs_only_analyzed_commands_in_random_character_sequences(tmp_path, commands):
    _check_against_bash(commands, tmp_path)


def test_most_well_formed_lines_can_be_analyzed():
    analyzed: list[bool] = []

    @settings(max_examples=100, deadline=None, database=None)
    @given(well_formed_commands)
    def analyze(command):
        analyzed.append(analyze_shell_command(command).is_complete)

    analyze()
    assert sum(analyzed) >= 0.6 * len(analyzed)
