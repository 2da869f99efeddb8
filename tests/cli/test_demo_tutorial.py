"""`shoal demo tutorial` creates a project once."""

from __future__ import annotations

from pathlib import Path

from shoal_process import ShoalProgram


async def test_the_tutorial_project_is_created_without_overwriting_files(
    shoal: ShoalProgram, project: Path
) -> None:
    ran = await shoal("demo", "tutorial")
    assert ran.code == 0, ran.err
    script = project / "shoal-tutorial" / "model.toml"
    assert f"SHOAL_MODEL=scripted:$PWD/{script.name}" in ran.text
    assert (project / "shoal-tutorial" / "harbour" / "fees.py").is_file()
    script.write_text("# mine\n")
    again = await shoal("demo", "tutorial")
    assert again.code == 1
    assert "shoal-tutorial already exists" in again.err
    assert script.read_text() == "# mine\n"
