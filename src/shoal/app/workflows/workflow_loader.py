"""Workflows by the names that people type: found in files and modules, loaded, and given their arguments."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from shoal.app.definitions.workflow_files import NO_JAVASCRIPT, UNTRUSTED, WorkflowFiles, find_listing_project
from shoal.app.workflows.loop_watchdog import interrupt_blocking_module
from shoal.app.workflows.workflow_definition import WorkflowDefinition
from shoal.core.errors import WorkflowError
from shoal.core.events import WorkflowStarted
from shoal.core.extensions.skills import WorkflowCommand
from shoal.core.text.filenames import escape_filename
from shoal.core.text.name_suggestions import find_similar_names

_NAMED_ARGUMENT = re.compile(r"(?:^|(?<=\s))([A-Za-z_]\w*)=(?!=)")
_SHOWN_VALUE = 80


def find_workflow(reference: str, files: WorkflowFiles, cwd: Path) -> WorkflowDefinition[Any, Any]:
    """Load the workflow with this NAME, of `FILE.py`, `FILE.py:NAME`, or of an importable `MODULE:NAME`.

    A path runs even an untrusted file: only a person can pass it. Raises `WorkflowError`.
    """
    first, _, name = reference.partition(":")
    if first.endswith((".py", ".js")) or "/" in first:
        return load_workflow_file((cwd / first).resolve(), name or None)
    commands = files.list_commands()
    command = next((each for each in commands if each.name == reference), None)
    if command is not None:
        return load_workflow_command(command, files)
    for file in files.list_files():
        if file.problem and file.path.stem == reference:
            raise WorkflowError(f"{escape_filename(file.path)} cannot run: {file.problem}")
    known = ", ".join(each.name for each in commands) or "none"
    if not name:
        raise WorkflowError(
            f"There is no workflow {reference!r}. Known workflows: {known}. Pass a name, FILE.py, "
            "FILE.py:NAME or MODULE:NAME."
        )
    try:
        module = _import_module(first)
    except WorkflowError as error:
        raise WorkflowError(
            f"There is no workflow {reference!r}. Known workflows: {known}. {error}"
        ) from error.__cause__
    return select_workflow(module, name, f"The module {first}")


def load_workflow_command(command: WorkflowCommand, files: WorkflowFiles) -> WorkflowDefinition[Any, Any]:
    """Load a listed workflow. Raises `WorkflowError` if it cannot run, for example without trust."""
    if command.problem:
        raise WorkflowError(f"The workflow {command.name} cannot run: {command.problem}")
    return load_workflow_file(command.path, command.function, files)


def load_recorded_workflow(started: WorkflowStarted, home: Path, cwd: Path) -> WorkflowDefinition[Any, Any]:
    """Load the file of a workflow that ran before, as the module that it was if that can be imported.

    A file that a project lists needs trust in its current state, whatever directory the caller is in and
    however the workflow was started. Raises `WorkflowError`.
    """
    source = cwd / started.source
    project = find_listing_project(source)
    if project is not None:
        return load_workflow_file(source, started.name, WorkflowFiles(home=home, project=project))
    if not _is_module_at(started.module, source):
        return load_workflow_file(source, started.name)
    return select_workflow(_import_module(started.module), started.name, f"The module {started.module}")


def _is_module_at(module: str, source: Path) -> bool:
    """Return True if Python finds the module, or the package that contains it, where the file is."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = spec.submodule_search_locations or filter(None, (spec.origin,))
    return any(source.resolve().is_relative_to(Path(place).resolve()) for place in places)


def load_workflow_file(
    path: Path, name: str | None, trusted_in: WorkflowFiles | None = None
) -> WorkflowDefinition[Any, Any]:
    """Run the file and return the workflow with this name, or the only one.

    With `trusted_in`, exactly the bytes that are trusted run. Raises `WorkflowError`.
    """
    shown = escape_filename(path)
    if path.suffix == ".js":
        raise WorkflowError(f"{shown} is not used: {NO_JAVASCRIPT}")
    module_name = f"shoal_workflow_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    try:
        source = path.read_bytes()
    except OSError:
        spec = None
    if spec is None:
        raise WorkflowError(f"{shown} is not a Python file. Pass the path of a file that defines a workflow.")
    if trusted_in is not None and not trusted_in.is_content_trusted(path, sha256(source).hexdigest()):
        raise WorkflowError(f"The workflow {name} cannot run: {UNTRUSTED}")
    module = importlib.util.module_from_spec(spec)
    # Types of the module's functions are looked up there.
    sys.modules[module_name] = module
    try:
        with interrupt_blocking_module(name or path.stem):
            exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the user's program
    except WorkflowError:
        raise
    except Exception as error:  # boundary around the user's file: it may raise anything
        raise WorkflowError(f"{shown} cannot be run: {type(error).__name__}: {error}") from error
    return select_workflow(module, name, shown)


def select_workflow(module: ModuleType, name: str | None, where: str) -> WorkflowDefinition[Any, Any]:
    """Return the workflow of a module with this name, or the only one. Raises `WorkflowError`."""
    found = {each.name: each for each in vars(module).values() if isinstance(each, WorkflowDefinition)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is not None and name in found:
        return found[name]
    what = (
        f"no workflow {name!r}" if name is not None else "more than one workflow" if found else "no workflow"
    )
    names = ", ".join(found) or "none"
    raise WorkflowError(f"{where} has {what}. Its workflows: {names}. Choose one with FILE.py:NAME.")


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # boundary around the user's module: it may raise anything
        is_missing = isinstance(error, ModuleNotFoundError)
        advice = " Add its directory to PYTHONPATH, or pass FILE.py:NAME." if is_missing else ""
        raise WorkflowError(
            f"The module {name} cannot be imported: {type(error).__name__}: {error}.{advice}"
        ) from error


def parse_typed_arguments(definition: WorkflowDefinition[Any, Any], text: str) -> dict[str, Any]:
    """Parse what follows `/NAME`: NAME=VALUE words, a JSON object, or a text for the only parameter.

    Raises `WorkflowError`.
    """
    text = text.strip()
    if not text:
        return definition.parse_arguments({})
    if text.startswith("{"):
        return definition.parse_arguments(parse_json_object(text, f"The input of /{definition.name}"))
    names = definition.list_parameter_names()
    named = _split_named_arguments(definition.name, text, names)
    if named is not None:
        for name, value in named.items():
            _refuse_unknown_argument(definition.name, value, names, argument=name)
        return definition.parse_arguments(
            {name: parse_argument_value(value) for name, value in named.items()}
        )
    _refuse_unknown_argument(definition.name, text, names)
    if len(names) == 1:
        return definition.parse_arguments({names[0]: parse_argument_value(text)})
    raise WorkflowError(
        f"/{definition.name} takes {', '.join(f'{name}=…' for name in names) or 'no arguments'}. Write each "
        "argument as NAME=VALUE, where VALUE is JSON or plain text, or write one JSON object."
    )


def _refuse_unknown_argument(
    workflow: str, text: str, names: Sequence[str], *, argument: str | None = None
) -> None:
    """Raise `WorkflowError` for `NAME=` in a text if the name is not a parameter; quoted text is not checked.

    A text without `argument` may be prose, so there a name counts at the start or if it is like a parameter.
    """
    if parse_argument_value(text) != text:
        return  # JSON
    for match in _NAMED_ARGUMENT.finditer(text):
        name = match[1]
        close = find_similar_names(name, names)
        if argument is None and match.start() > 0 and not close:
            continue
        suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
        known = ", ".join(f"{each}=…" for each in names) or "no arguments"
        quoted = json.dumps(text if len(text) <= _SHOWN_VALUE else "…", ensure_ascii=False)
        example = f"{argument or (names[0] if names else 'NAME')}={quoted}"
        raise WorkflowError(
            f"/{workflow} has no argument {name!r}.{suggestion} It takes {known}. If {name}= is part of a "
            f"text, put the text in quotes: {example}"
        )


def _split_named_arguments(workflow: str, text: str, names: Sequence[str]) -> dict[str, str] | None:
    """Split at each ` NAME=` of a known parameter; None if the text does not start with one.

    Quoted texts and other JSON values are not split. Raises `WorkflowError` for a name that is given twice.
    """
    start = re.compile(rf"(?:^|\s)({'|'.join(map(re.escape, names))})=")
    found: dict[str, str] = {}
    match = start.match(text) if names else None
    while match is not None:
        name, begin = match[1], match.end()
        match = start.search(text, _find_json_end(text, begin))
        if name in found:
            raise WorkflowError(
                f"/{workflow}: the argument {name!r} is given twice. Leave one out. If {name}= is part of a "
                "text, put the text in quotes."
            )
        found[name] = text[begin : None if match is None else match.start()].strip()
    return found or None


def _find_json_end(text: str, begin: int) -> int:
    """Return the end of the quoted text, list or object at a place, or the place itself if there is none."""
    if text[begin : begin + 1] not in ('"', "[", "{"):
        return begin
    try:
        return json.JSONDecoder().raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return begin


def parse_argument_words(words: Sequence[str], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Add NAME=VALUE words to the given arguments. Raises `WorkflowError`."""
    arguments = dict(given or {})
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise WorkflowError(f"{word!r} is not an argument. Write NAME=VALUE.")
        if name in arguments:
            raise WorkflowError(f"The argument {name!r} is given twice. Leave one out.")
        arguments[name] = parse_argument_value(text)
    return arguments


def parse_json_object(text: str, what: str) -> dict[str, Any]:
    """Raises `WorkflowError`."""
    try:
        value = json.loads(text, object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise WorkflowError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WorkflowError(f'{what} must be a JSON object, such as {{"files": ["a.py"]}}.')
    return value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} is given twice in one object. Leave one out.")
        found[name] = value
    return found


def parse_argument_value(text: str) -> Any:
    """Return the JSON value, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
