"""Loaded by the programs that tests start: records which functions of Shoal they enter, for which test.

A line is written as soon as a function is entered, so a program that is killed is recorded too.
"""

import os
import sys
import threading

directory = os.environ.get("MUTATION_CALL_MAP")
test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
if directory and test:
    sources = f"{os.environ['MUTATION_ROOT']}/src/shoal/"
    prefix = f"{os.environ['MUTATION_ROOT']}/"
    path = f"{directory}/children.txt"
    seen = set()

    def note_call(frame, event, argument):  # type: ignore[no-untyped-def]
        code = frame.f_code
        if code in seen:
            return
        seen.add(code)
        if code.co_name == "build_interpreter_environment":
            # The server that forks teammates gets no other variables.
            names = ("MUTATION_CALL_MAP", "MUTATION_ROOT", "PYTEST_CURRENT_TEST")
            frame.f_globals["INTERPRETER_VARIABLES"] += names
        if code.co_filename.startswith(sources):
            line = f"{code.co_filename.removeprefix(prefix)}:{code.co_qualname}\t{test}\n"
            try:
                # Opened for each line: the server that forks teammates closes all descriptors.
                output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
                os.write(output, line.encode())
                os.close(output)
            except OSError:
                sys.settrace(None)

    threading.settrace(note_call)
    sys.settrace(note_call)
