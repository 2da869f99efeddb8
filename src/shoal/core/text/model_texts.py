"""Texts for models, stored in Markdown files of the package that sends them.

Each file is read once, when it is first needed. A text never depends on docstrings, which `python -OO` drops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HEADING = re.compile(r"^# (\S+)\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_WRAPPED_LINE = re.compile(r"(?<!\n)\n(?!\n|[*-] )")


class ModelTexts:
    """Texts in the `.md` files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, str] = {}
        self._sections: dict[str, dict[str, str]] = {}
        self._templates: dict[tuple[str, str], tuple[str, int]] = {}

    def load_text(self, name: str) -> str:
        """Return a whole file as it is."""
        text = self._files.get(name)
        if text is None:
            text = self._files[name] = (self._directory / f"{name}.md").read_text(encoding="utf-8")
        return text

    def load_sections(self, name: str) -> Mapping[str, str]:
        """Return the texts under the `# ` headings of a file; the one before the first heading is ""."""
        sections = self._sections.get(name)
        if sections is None:
            first, *rest = _HEADING.split(self.load_text(name))
            texts = {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}
            sections = self._sections[name] = {key: text.strip() for key, text in texts.items()}
        return sections

    def fill_section(self, name: str, section: str, /, **values: object) -> str:
        """Return a section with its placeholders filled in.

        If the file cannot be read, for example because too many files are open, the text contains the name of
        the section and the values, so that a refusal stays a refusal and keeps its reason.
        """
        try:
            template, count = self._templates[name, section]
        except KeyError:
            try:
                text = self.load_sections(name)[section]
            except OSError as error:
                details = "".join(f" {key}: {value}." for key, value in values.items())
                return f"{section}.{details} (Shoal cannot read the text of this message: {error}.)"
            template, count = self._templates[name, section] = _compile_template(text)
        if len(values) != count:
            raise KeyError(f"{section}: values for {', '.join(sorted(values))}, but {count} placeholders")
        return template % values


def unwrap_lines(text: str) -> str:
    """Join lines that were broken only for source width; keep paragraphs and lists."""
    return _WRAPPED_LINE.sub(" ", text)


def fill_template(template: str, /, **values: object) -> str:
    """Replace each `{name}` with its value. Values are inserted as they are and never searched.

    Raises `KeyError` for a placeholder without a value and for a value without a placeholder.
    """
    compiled, count = _compile_template(template)
    if len(values) != count:
        raise KeyError(f"values for {', '.join(sorted(values))}, but {count} placeholders")
    return compiled % values


def _compile_template(template: str) -> tuple[str, int]:
    """Return the template in the form that `%` fills, and the number of its placeholders."""
    names = set(_PLACEHOLDER.findall(template))
    return _PLACEHOLDER.sub(r"%(\1)s", template.replace("%", "%%")), len(names)
