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
    output = os.open(f"{directory}/children.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    # Programs close descriptors that they do not know.
    high = 900
    os.dup2(output, high, inheritable=False)
    os.close(output)
    seen = set()

    def note_call(frame, event, argument):  # type: ignore[no-untyped-def]
        code = frame.f_code
        if code in seen:
            return
        seen.add(code)
        if code.co_filename.startswith(sources):
            line = f"{code.co_filename.removeprefix(prefix)}:{code.co_qualname}\t{test}\n"
            try:
                os.write(high, line.encode())
            except OSError:
                sys.settrace(None)

    threading.settrace(note_call)
    sys.settrace(note_call)
