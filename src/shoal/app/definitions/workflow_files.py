"""Workflows in files of the project, the home and plug-ins. They are parsed, never run, to list them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.settings.file_stamps import FileStamp, is_file_unchanged, stamp_file
from shoal.app.settings.settings_trust import PermissionEscalation, read_document_trust
from shoal.core.errors import StateFileError
from shoal.core.extensions.skills import WorkflowCommand
from shoal.core.text.filenames import escape_filename
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import SettingsDocument

WorkflowSource: TypeAlias = Literal["project", "home", "plugin"]
NO_JAVASCRIPT = "Shoal runs only Python workflows. Rewrite it: docs/workflows.md has an example."
UNTRUSTED = (
    "This project's workflows are not trusted in their current state. Read them, then trust the project: "
    "shoal trust"
)
_DECORATOR = "workflow"
_PROJECT_DIRECTORY = Path(".claude") / "workflows"


class ParsedWorkflow(Struct, frozen=True, kw_only=True):
    """A workflow of a file, as the text of the file declares it."""

    name: str
    description: str
    parameters: str


class WorkflowFileEntry(Struct, frozen=True, kw_only=True):
    """A file that defines workflows."""

    path: Path
    source: WorkflowSource
    namespace: str = ""
    """Name of the plug-in."""
    workflows: tuple[ParsedWorkflow, ...] = ()
    problem: str = ""
    """Reason why nothing in the file can be run."""

    @property
    def names(self) -> tuple[str, ...]:
        prefix = f"{self.namespace}:" if self.namespace else ""
        return tuple(f"{prefix}{each.name}" for each in self.workflows)


class WorkflowFiles:
    """Workflow files of one project and home; unchanged files are parsed once."""

    def __init__(
        self,
        *,
        home: Path,
        project: Path,
        plugins: PluginSet | None = None,
        sources: Collection[str] | None = None,
    ) -> None:
        """`sources` limits the files to those of the `user` and the `project`; None means both."""
        self._sources = ("user", "project") if sources is None else sources
        self._home = home
        self._project = project
        self._plugins = plugins or PluginSet()
        self._parsed: dict[Path, tuple[FileStamp, tuple[ParsedWorkflow, ...], str]] = {}

    def list_files(self) -> list[WorkflowFileEntry]:
        """Return the files, those of the home first: a project cannot replace your own workflow."""
        home, project = self._home / "workflows", self._project / _PROJECT_DIRECTORY
        return [
            *(self._iter_directory(home, "home") if "user" in self._sources else ()),
            *(
                entry
                for plugin in self._plugins.all
                for entry in self._iter_directory(plugin.root / "workflows", "plugin", plugin.name)
            ),
            *(
                self._iter_directory(project, "project")
                if "project" in self._sources and project != home
                else ()
            ),
        ]

    def list_commands(self) -> tuple[WorkflowCommand, ...]:
        """Return each workflow once, by its name; those that cannot run include the reason."""
        found: dict[str, WorkflowCommand] = {}
        # A file that cannot run must not hide a workflow with its name.
        for file in sorted(self.list_files(), key=lambda each: each.path.suffix == ".js"):
            for name, workflow in zip(file.names, file.workflows, strict=True):
                command = WorkflowCommand(
                    name=name,
                    description=workflow.description,
                    argument_hint=workflow.parameters,
                    path=file.path,
                    function=workflow.name,
                    problem=file.problem,
                )
                found.setdefault(name, command)
        return tuple(found.values())

    def list_escalations(self) -> tuple[PermissionEscalation, ...]:
        """Return the files of the project, which need trust."""
        directory = self._project / _PROJECT_DIRECTORY
        return tuple(
            escalation
            for path in _list_paths(directory)
            if path.suffix == ".py"
            and (escalation := find_workflow_escalation(path, self._home, self._project)) is not None
        )

    def is_content_trusted(self, path: Path, digest: str) -> bool:
        """Return True if a file with this SHA-256 may run: those outside the project always may."""
        if (
            not path.is_relative_to(self._project / _PROJECT_DIRECTORY)
            or path.parent == self._home / "workflows"
        ):
            return True
        escalation = _build_escalation(path, digest, self._home, self._project)
        return escalation.trust == "trusted"

    def _iter_directory(
        self, directory: Path, source: WorkflowSource, namespace: str = ""
    ) -> Iterator[WorkflowFileEntry]:
        for path in _list_paths(directory):
            if path.suffix == ".py":
                workflows, problem = self._parse_file(path)
            else:
                workflows, problem = _name_script(path), NO_JAVASCRIPT
            if not problem and source == "project":
                escalation = find_workflow_escalation(path, self._home, self._project)
                problem = "" if escalation is not None and escalation.trust == "trusted" else UNTRUSTED
            yield WorkflowFileEntry(
                path=path, source=source, namespace=namespace, workflows=workflows, problem=problem
            )

    def _parse_file(self, path: Path) -> tuple[tuple[ParsedWorkflow, ...], str]:
        known = self._parsed.get(path)
        if known is not None and is_file_unchanged(str(path), known[0]):
            return known[1], known[2]
        stamp = stamp_file(str(path))
        workflows, problem = _parse_workflow_file(path)
        self._parsed[path] = (stamp, workflows, problem)
        return workflows, problem


def find_listing_project(path: Path) -> Path | None:
    """Return the project whose workflow directory contains the file; None if the file is elsewhere."""
    project = path.parent.parent.parent
    return project if path.parent == project / _PROJECT_DIRECTORY else None


def find_workflow_escalation(path: Path, home: Path, project: Path) -> PermissionEscalation | None:
    """Return a project's file as something that needs trust in its current state; None if it is gone."""
    try:
        digest = sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
    return _build_escalation(path, digest, home, project)


def _build_escalation(path: Path, digest: str, home: Path, project: Path) -> PermissionEscalation:
    key, value = ("workflow", path.name), {"file": escape_filename(path), "sha256": digest}
    document = SettingsDocument(
        name=str(path), kind="workflow", path=path, text="{}", raw={"workflow": {path.name: value}}
    )
    try:
        trust = read_document_trust(ProjectTrustFile(home), project, document, ((key, value),))
    except StateFileError:
        trust = "unasked"
    return PermissionEscalation(document=document, keys=key, value=value, trust=trust)


def _name_script(path: Path) -> tuple[ParsedWorkflow, ...]:
    """Return a JavaScript workflow by the name of its file, so that the reason is found under that name."""
    is_name = path.stem.replace("-", "_").isidentifier()
    return (ParsedWorkflow(name=path.stem, description="", parameters=""),) if is_name else ()


def _list_paths(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in (".py", ".js"))
    except OSError:
        return []


def _parse_workflow_file(path: Path) -> tuple[tuple[ParsedWorkflow, ...], str]:
    try:
        workflows = tuple(_iter_workflows(ast.parse(path.read_text(encoding="utf-8"))))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (), f"The file cannot be read: {error}"
    no_workflow = "The file defines no workflow. Decorate an async function with @shoal.workflow."
    return workflows, "" if workflows else no_workflow


def _iter_workflows(tree: ast.Module) -> Iterator[ParsedWorkflow]:
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and any(map(_is_workflow_decorator, node.decorator_list)):
            arguments = node.args
            names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
            names += [each.arg for each in arguments.kwonlyargs]
            yield ParsedWorkflow(
                name=node.name,
                description=(ast.get_docstring(node) or "").partition("\n")[0],
                parameters=" ".join(f"{name}=…" for name in names),
            )


def _is_workflow_decorator(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == _DECORATOR) or (
        isinstance(node, ast.Name) and node.id == _DECORATOR
    )
