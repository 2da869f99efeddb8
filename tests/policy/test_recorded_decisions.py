"""The documented calls are decided as recorded: for the same reasons, and no more of them are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented_cases import create_case_project
from recorded_decisions import (
    GROUPS,
    UPDATE_RECORD,
    iter_outcomes,
    list_corpora,
    load_record,
    save_record,
)


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_documented_call_is_decided_as_recorded(
    tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Words of the path of a temporary home directory, such as "open", could look like those of a program.
    monkeypatch.setenv("HOME", "/home/nobody")
    project, record = create_case_project(tmp_path), load_record()
    changed = []
    for corpus in list_corpora(group):
        decided = list(iter_outcomes(corpus, project))
        if UPDATE_RECORD:
            record.set_outcomes(corpus, [outcome for _, outcome in decided])
            save_record(record)
        changed += [
            (case, before, now)
            for before, (case, now) in zip(record.list_outcomes(corpus), decided, strict=True)
            if before != now
        ]
    assert changed == []
