"""Functions that a test and the programs it starts enter are recorded, and nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.mutation.call_records import CallRecords, compute_digest
from tests.mutation.entry_marks import open_marks
from tests.mutation.instrumented_tree import FUNCTIONS, instrument_tree
from tests.mutation.rooms import ROOT

TOY = '''"""A toy."""

from __future__ import annotations

class Guard:
    """Guards."""

    def check(self) -> None:
        """Check."""
        def decide(): return __import__("sys")._getframe().f_lineno
        return decide

    async def wait(self): ...

def count():
    if True:
        yield 1

def untouched():
    pass
'''
PROGRAM = """
import os, shoal.toy
print(shoal.toy.Guard().check()(), shoal.toy.Guard.check.__doc__)
if os.fork() == 0:
    next(shoal.toy.count())
    os._exit(0)
os.wait()
"""


def test_functions_that_a_program_without_an_environment_enters_are_marked(tmp_path: Path) -> None:
    package = tmp_path / "tree" / "src" / "shoal"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "toy.py").write_text(TOY)
    instrument_tree(tmp_path / "tree", tmp_path)
    functions = json.loads((tmp_path / FUNCTIONS).read_bytes())
    assert (package / "toy.py").read_text() == TOY
    marks_file = tmp_path / f"{os.getpid()}.marks"
    marks_file.write_bytes(bytes(len(functions)))
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, sys.argv[1]){PROGRAM}"]
    output = subprocess.check_output([*command, str(package.parent)], env={}, text=True, timeout=60)
    assert output == "10 Check.\n"
    marks = open_marks(str(marks_file), len(functions))[:]
    entered = {name.rpartition(":")[2] for name, mark in zip(functions, marks, strict=True) if mark}
    assert entered == {"Guard.check", "Guard.check.<locals>.decide", "count"}
    assert len(functions) == 5


def test_only_new_and_changed_files_are_recorded_again() -> None:
    own, other = "tests/mutation/test_call_records.py", "tests/mutation/test_mutants.py"
    records = CallRecords({"digests": {own: compute_digest(ROOT / own), other: "of an older file"}})
    unrecorded = records.list_unrecorded_files()
    assert own not in unrecorded
    assert other in unrecorded
