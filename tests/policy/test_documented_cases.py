"""Calls written from the documentation alone get the decisions that it promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented_cases import (
    create_case_engine,
    create_case_project,
    decide_case,
    decide_settings_case,
    is_as_documented,
    iter_documented_cases,
    load_settings_cases,
)


@pytest.fixture
def case_project(tmp_path: Path) -> Path:
    return create_case_project(tmp_path)


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    "name",
    [
        "independent.txt",
        "independent_again.txt",
        "fresh_1.txt",
        "fresh_2.txt",
        "fresh_3.txt",
        "fresh_4.txt",
        "fresh_5.txt",
        "fresh_6.txt",
        "fresh_7.txt",
        "fresh_8.txt",
        "fresh_9.txt",
        "fresh_10.txt",
        "fresh_11.txt",
        "fresh_12.txt",
        "fresh_13.txt",
        "fresh_14.txt",
        "fresh_15.txt",
        "fresh_16.txt",
        "fresh_17.txt",
        "fresh_18.txt",
        "fresh_19.txt",
        "fresh_20.txt",
        "fresh_21.txt",
        "fresh_22.txt",
        "fresh_23.txt",
        "fresh_24.txt",
        "fresh_25.txt",
        "fresh_26.txt",
        "fresh_27.txt",
        "fresh_28.txt",
        "similar_commands.txt",
    ],
)
def test_every_call_is_decided_as_documented(case_project: Path, name: str) -> None:
    engines = {}
    wrong = []
    for case in iter_documented_cases(name, case_project):
        if case.setting not in engines:
            engines[case.setting] = create_case_engine(case_project, case.setting)
        decision = decide_case(engines[case.setting], case)
        if not is_as_documented(case.expected, decision):
            wrong.append((decision, case))
    assert wrong == []


@pytest.mark.spec("PRM-02")
def test_every_call_under_settings_files_is_decided_as_documented(case_project: Path) -> None:
    cases = load_settings_cases("independent_settings.jsonl")
    decisions = ((decide_settings_case(case, case_project), case) for case in cases)
    assert [each for each in decisions if not is_as_documented(each[1].expected, each[0])] == []
