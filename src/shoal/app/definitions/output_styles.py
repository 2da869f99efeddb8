"""Output styles: texts at the end of the lead's prompt that change how it works with the user."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.model_notices import format_session_notice
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.settings import Settings
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.decoded_text import decode_text, describe_replaced_bytes
from shoal.core.text.filenames import escape_filename
from shoal.core.unused_items import UnusedItem

DEFAULT_STYLE = "default"
_DIRECTORY = "output-styles"
_BUILT_IN_DIRECTORY = Path(__file__).parent.parent / "prompts" / "output_styles"
_MAX_CHARS = 50_000
_FIELDS = ("name", "description", "keep-coding-instructions")
_TRUE_VALUES = ("true", "yes", "on")


class OutputStyle(Struct, frozen=True, kw_only=True):
    name: str
    body: str
    keeps_coding_instructions: bool = False
    """True if the usual instructions about work and answers stay in the prompt."""
    note: str = ""
    """Sentence about the file, for the user who chose the style."""

    def format_prompt_section(self) -> str:
        return format_session_notice("output_style", name=self.name, body=self.body)


class ChosenOutputStyle(Struct, frozen=True, kw_only=True):
    style: OutputStyle | None = None
    notes: tuple[str, ...] = ()
    """Sentences about a style that cannot be used."""
    unused_items: tuple[UnusedItem, ...] = ()
    """The setting, if there is no such style."""

    @property
    def name(self) -> str:
        return DEFAULT_STYLE if self.style is None else self.style.name


class OutputStyleFile(Struct, frozen=True, kw_only=True):
    """File of the project, the home or a plug-in that defines a style."""

    path: Path
    name: str
    problem: str = ""
    """Reason why the style cannot be chosen."""


def choose_output_style(
    settings: Settings, cwd: Path, plugins: Sequence[tuple[str, Path]] = ()
) -> ChosenOutputStyle:
    """Return the style that the settings name; files of the project come first, then yours.

    `plugins` are pairs of namespace and directory.
    """
    named = next(
        ((each, each.raw["outputStyle"]) for each in settings.documents if each.raw.get("outputStyle")), None
    )
    if named is None or str(named[1]).strip().lower() == DEFAULT_STYLE:
        return ChosenOutputStyle()
    document, name = named
    notes: list[str] = []
    for path in _iter_style_files(settings.home, cwd):
        style = _load_style_file(path, notes)
        if style is not None and isinstance(name, str) and style.name.lower() == name.strip().lower():
            return ChosenOutputStyle(style=style, notes=(*notes, *filter(None, (style.note,))))
    for style in _iter_plugin_styles(plugins, notes):
        if isinstance(name, str) and style.name.lower() == name.strip().lower():
            return ChosenOutputStyle(style=style, notes=(*notes, *filter(None, (style.note,))))
    unused = UnusedItem(
        location=document.locate_key(("outputStyle",)),
        name="outputStyle",
        reason=f"there is no output style {name!r}; the default style is used",
    )
    return ChosenOutputStyle(notes=tuple(notes), unused_items=(unused,))


def list_output_style_names(
    settings: Settings, cwd: Path, plugins: Sequence[tuple[str, Path]] = ()
) -> list[str]:
    """Return the names of all styles, the usual one first."""
    styles = (_load_style_file(path, []) for path in _iter_style_files(settings.home, cwd))
    names = [style.name for style in (*styles, *_iter_plugin_styles(plugins, [])) if style is not None]
    return list(dict.fromkeys((DEFAULT_STYLE, *names)))


def _iter_plugin_styles(plugins: Sequence[tuple[str, Path]], notes: list[str]) -> Iterator[OutputStyle]:
    for namespace, directory in plugins:
        for path in sorted(directory.glob("*.md")):
            if (style := _load_style_file(path, notes)) is not None:
                yield replace(style, name=f"{namespace}:{style.name}")


def list_output_style_files(
    settings: Settings, cwd: Path, plugins: Sequence[tuple[str, Path]] = ()
) -> Iterator[OutputStyleFile]:
    """Yield the files of the project, the home and plug-ins, highest precedence first."""
    usable, names = {*_iter_style_files(settings.home, cwd)}, {DEFAULT_STYLE}
    for path in dict.fromkeys((*_iter_project_files(cwd), *_list_style_files(settings.home))):
        notes: list[str] = []
        style = _load_style_file(path, notes) if path in usable else None
        if path not in usable:
            problem = "it is outside the project"
        elif style is None:
            problem = notes[0] if notes else "it is empty"
        else:
            problem = "another style with this name takes precedence" if style.name.lower() in names else ""
            names.add(style.name.lower())
        yield OutputStyleFile(path=path, name=path.stem if style is None else style.name, problem=problem)
    for namespace, directory in plugins:
        for path in sorted(directory.glob("*.md")):
            notes = []
            style = _load_style_file(path, notes)
            name = path.stem if style is None else style.name
            problem = "" if style is not None else notes[0] if notes else "it is empty"
            yield OutputStyleFile(path=path, name=f"{namespace}:{name}", problem=problem)


def _iter_style_files(home: Path, cwd: Path) -> Iterator[Path]:
    *_, top = iter_project_directories(cwd)
    root = os.path.realpath(top)
    for path in _iter_project_files(cwd):
        # A project may come from anyone. It must not put files from outside the project into the prompt.
        if os.path.realpath(path).startswith(f"{root.rstrip('/')}/"):
            yield path
    yield from _list_style_files(home)
    yield from sorted(_BUILT_IN_DIRECTORY.glob("*.md"))


def _iter_project_files(cwd: Path) -> Iterator[Path]:
    for directory in iter_project_directories(cwd):
        yield from _list_style_files(directory / ".claude")


def _list_style_files(base: Path) -> list[Path]:
    return sorted((base / _DIRECTORY).glob("*.md"))


def _load_style_file(path: Path, notes: list[str]) -> OutputStyle | None:
    from shoal.wire.front_matter import InvalidFrontMatterError, parse_front_matter

    try:
        with path.open("rb") as file:
            content = file.read(4 * _MAX_CHARS)
        text, has_replaced_bytes = decode_text(content, is_truncated=len(content) == 4 * _MAX_CHARS)
        text = text[:_MAX_CHARS]
        fields, body = {}, text
        if text.startswith("---"):
            document = parse_front_matter(text, _FIELDS)
            fields, body = {entry.key: entry.value for entry in document.entries}, document.body
    except (OSError, InvalidFrontMatterError) as error:
        notes.append(f"{escape_filename(path)} is not used as an output style: {error}.")
        return None
    if not body.strip():
        return None
    keeps = str(fields.get("keep-coding-instructions") or "").lower() in _TRUE_VALUES
    return OutputStyle(
        name=str(fields.get("name") or path.stem),
        body=escape_control_tags(body.strip()),
        keeps_coding_instructions=keeps,
        note=describe_replaced_bytes(f"{escape_filename(path)} is") if has_replaced_bytes else "",
    )
