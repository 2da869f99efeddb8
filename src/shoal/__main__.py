"""Entry point of `python -m shoal`, the `shoal` command."""

from __future__ import annotations

from shoal.surfaces.cli.main import main

main()
