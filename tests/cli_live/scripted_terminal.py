"""`shoal` with a scripted model at a terminal: scripted_terminal.py SCRIPT MODE PACE RESUME [PROMPT]."""

from __future__ import annotations

import sys
from pathlib import Path

from shoal.app.options import Options
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.cli.interactive_session import run_interactive_session

if __name__ == "__main__":
    script, mode, pace, resume, *prompt = sys.argv[1:]
    options = Options(
        model=ScriptedModel.from_file(Path(script), pace=float(pace)),
        mode=mode,  # type: ignore[arg-type]
        continue_last=bool(resume),
    )
    sys.exit(run_interactive_session(options, prompt[0] if prompt else None))
