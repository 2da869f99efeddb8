"""Workflows as programs define them: run in a session, and resumed in the same session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
)

from shoal.app.workflows.json_values import convert_json_value, restore_json_value, to_json_value
from shoal.app.workflows.step_log import StepLog, StepRecord, WorkflowRecord, WorkflowRecords
from shoal.app.workflows.step_runner import StepRunner
from shoal.app.workflows.workflow import Workflow
from shoal.app.workflows.workflow_supervisor import WorkflowLaunch, WorkflowSession, WorkflowSupervisor
from shoal.core.errors import WorkflowError
from shoal.core.events import WorkflowStarted
from shoal.core.ids import LEAD_ID
from shoal.core.keyword_checks import check_keywords
from shoal.core.output_type import OutputType
from shoal.core.text.name_suggestions import suggest_name
from shoal.core.text.text_format import to_one_line

ArgumentsP = ParamSpec("ArgumentsP")
ReturnT = TypeVar("ReturnT")
ReturnT_co = TypeVar("ReturnT_co", covariant=True)


class WorkflowDefinition(Generic[ArgumentsP, ReturnT_co]):
    """An async function whose first parameter is a `Workflow`. Create it with `@shoal.workflow`."""

    def __init__(
        self, function: Callable[Concatenate[Workflow, ArgumentsP], Coroutine[Any, Any, ReturnT_co]]
    ) -> None:
        """Check the function. Raises `TypeError`."""
        if not hasattr(function, "__code__"):
            raise TypeError(f"@shoal.workflow makes workflows from functions, not from {function!r:.80}.")
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.name = function.__name__
        """Name of the function."""
        self.description = (inspect.getdoc(function) or "").partition("\n")[0]
        self._function = function
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"@shoal.workflow: {self.name} must be an async function: write `async def`.")
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise TypeError(
                f"@shoal.workflow: {self.name} needs the workflow as its first parameter: "
                f"`async def {self.name}(flow: shoal.Workflow, ...)`."
            )
        if parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
            raise TypeError(
                f"@shoal.workflow: {self.name} is a method. Make it a function whose first parameter is the "
                "workflow: a resumed run has no object to call it on."
            )
        for each in parameters[1:]:
            if each.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"@shoal.workflow: {self.name} takes {each.name!r} only by its position. Remove the `/`: "
                    "Shoal stores arguments by name."
                )
        unsupported = [each.name for each in parameters if each.kind in _VARIADIC]
        if unsupported:
            raise TypeError(
                f"@shoal.workflow: {self.name} takes any number of arguments as {unsupported[0]!r}. Name "
                "each parameter: Shoal stores arguments by name."
            )
        self._check_parameter_types()
        self._check_returned_type()

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    if not TYPE_CHECKING:

        def __call__(self, *_: Any, **__: Any) -> NoReturn:
            raise TypeError(f"{self.name} is a workflow. Run it: `await {self.name}.run(session, ...)`.")

    @property
    def source(self) -> str:
        """File that defines it."""
        return self._function.__code__.co_filename

    async def run(
        self, session: WorkflowSession, *args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs
    ) -> ReturnT_co:
        """Run the workflow in an open session and return what its function returns.

        In another workflow it is a step: when that workflow is resumed, this one continues too. Raises what
        the function raises, and `WorkflowError`.
        """
        _check_session(f"{self.name}.run()", session)
        self._check_parameter_types()
        self._check_returned_type()
        names = self.list_parameter_names()
        for name in kwargs:
            if name not in names:
                suggestion = suggest_name(name, names) if names else " It takes no arguments."
                raise TypeError(f"{self.name}.run(): there is no parameter {name!r}.{suggestion}")
        try:
            bound = self._get_signature().bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}.run(): {error}.") from None
        bound.apply_defaults()
        workflows, arguments = session.workflows, self._restore_arguments(bound.arguments)
        if (parent := workflows.get_calling_steps()) is not None:
            return await self._run_as_step(workflows, parent, arguments)
        return await self._execute(workflows, workflows.create_id(self.name), arguments)

    async def _run_as_step(
        self, workflows: WorkflowSupervisor, parent: StepRunner, arguments: dict[str, Any]
    ) -> ReturnT_co:
        async def run_or_continue(step: StepRecord) -> Any:
            place = f"{parent.workflow}:{step.number}"
            records = workflows.read_records()
            if (record := records.find_child(place)) is not None:
                returned = await self._continue(workflows, records, record)
            else:
                workflow = workflows.create_id(self.name)
                returned = await self._execute(workflows, workflow, arguments, parent=place)
            return to_json_value(returned, f"The value that {self.name} returns")

        given = {"arguments": self._encode_arguments(arguments)}
        path = "/".join(filter(None, (parent.phase, f"workflow {self.name}")))
        return self._convert_returned_value(await parent.run_step(path, given, self.name, run_or_continue))

    @check_keywords("workflow.resume()")
    async def resume(
        self, session: WorkflowSession, workflow: str | None = None, *, rerun_from: int | None = None
    ) -> ReturnT_co:
        """Continue a workflow of a resumed session, by default the latest one with this name.

        Steps that finished are not repeated, and a workflow that completed returns its value again. With
        `rerun_from`, the step with that number and all later steps run again. Raises `WorkflowChanged` if the
        program now asks for other steps.
        """
        _check_session(f"{self.name}.resume()", session)
        self._check_returned_type()
        workflows = session.workflows
        records = workflows.read_records()
        return await self._continue(workflows, records, records.find(self.name, workflow), rerun_from)

    async def _continue(
        self,
        workflows: WorkflowSupervisor,
        records: WorkflowRecords,
        record: WorkflowRecord,
        rerun_from: int | None = None,
    ) -> ReturnT_co:
        steps = record.select_steps(rerun_from)
        if record.ended is not None and record.ended.status == "completed" and rerun_from is None:
            return self._convert_returned_value(record.ended.value)
        hints = self._get_type_hints()
        arguments = {
            name: convert_json_value(value, hints.get(name, Any), f"The argument {name!r} of {self.name}")
            for name, value in record.started.arguments.items()
        }
        return await self._execute(
            workflows,
            record.started.workflow,
            arguments,
            log=StepLog(steps, records.completions),
            records=records,
            rerun_from=rerun_from,
            parent=record.started.parent,
        )

    def parse_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return JSON values as the types of the parameters. Raises `WorkflowError`."""
        names = self.list_parameter_names()
        for name in given:
            if name not in names:
                suggestion = suggest_name(name, names) if names else " It takes no arguments."
                raise WorkflowError(f"The workflow {self.name} has no parameter {name!r}.{suggestion}")
        try:
            bound = self._get_signature().bind(**given)
        except TypeError as error:
            raise WorkflowError(f"Wrong arguments for the workflow {self.name}: {error}.") from error
        hints = self._get_type_hints()
        return {
            name: convert_json_value(value, hints.get(name, Any), f"The argument {name!r} of {self.name}")
            for name, value in bound.arguments.items()
        }

    def list_parameter_names(self) -> list[str]:
        return list(self._get_signature().parameters)

    async def _execute(
        self,
        workflows: WorkflowSupervisor,
        workflow: str,
        arguments: dict[str, Any],
        *,
        log: StepLog | None = None,
        records: WorkflowRecords | None = None,
        rerun_from: int | None = None,
        parent: str = "",
    ) -> ReturnT_co:
        source, digest = self._read_source()
        if records is not None:
            workflows.note_changed_source(records.workflows[workflow], digest)
        start = WorkflowStarted(
            agent=LEAD_ID,
            workflow=workflow,
            name=self.name,
            arguments=self._encode_arguments(arguments),
            source=source,
            digest=digest,
            resumed=log is not None,
            rerun_from=rerun_from,
            module=self.__module__,
            parent=parent,
        )

        async def run_function(steps: StepRunner) -> ReturnT_co:
            function = cast("Callable[..., Coroutine[Any, Any, ReturnT_co]]", self._function)
            return await function(Workflow(steps, self._function.__code__), **arguments)

        launch = WorkflowLaunch(
            start=start,
            run=run_function,
            convert_value=self._convert_returned_value,
            log=log or StepLog(),
        )
        returned, _ = await workflows.execute(launch)
        return cast("ReturnT_co", returned)

    def _restore_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as a resumed run gets them. Raises `WorkflowError` if they would differ."""
        encoded, hints = self._encode_arguments(arguments), self._get_type_hints()
        return {
            name: restore_json_value(
                value, encoded[name], hints.get(name, Any), f"The argument {name!r} of {self.name}"
            )
            for name, value in arguments.items()
        }

    def _encode_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: to_json_value(value, f"The argument {name!r} of {self.name}")
            for name, value in arguments.items()
        }

    def _check_parameter_types(self) -> None:
        """Raise `TypeError` if an argument could not be stored; types may be defined after a function."""
        hints = self._get_type_hints()
        for name in self.list_parameter_names():
            python_type = hints.get(name, Any)
            if python_type in (Any, object, None, type(None)):
                continue
            try:
                OutputType(python_type)
            except TypeError as error:
                reason = str(error).removeprefix("output=")
                raise TypeError(
                    f"@shoal.workflow: the type of the parameter {name!r} of {self.name}: {reason}"
                ) from error

    def _check_returned_type(self) -> None:
        """Raise `TypeError` if the returned value could not be stored. Types may be defined after a function,
        so this is also checked at each start."""
        returned_type = self._get_type_hints().get("return", Any)
        if returned_type in (Any, None, type(None)):
            return
        try:
            OutputType(returned_type)
        except TypeError as error:
            reason = str(error).removeprefix("output=")
            raise TypeError(f"@shoal.workflow: the type that {self.name} returns: {reason}") from error

    def _convert_returned_value(self, value: Any) -> ReturnT_co:
        returned_type = self._get_type_hints().get("return", Any)
        what = f"The value that {to_one_line(self.name)} returns"
        return cast("ReturnT_co", convert_json_value(value, returned_type, what))

    def _get_signature(self) -> inspect.Signature:
        """Return the signature without the workflow."""
        signature = inspect.signature(self._function)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def _get_type_hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self._function)
        except NameError:  # a name that exists only for type checkers
            return {}

    def _read_source(self) -> tuple[str, str]:
        try:
            return self.source, sha256(Path(self.source).read_bytes()).hexdigest()
        except OSError:  # typed at a prompt
            return self.source, ""


def _check_session(function: str, session: Any) -> None:
    # The session of a command has no such function: the command itself opens and closes it.
    if (require_open := getattr(session, "require_open", None)) is not None:
        require_open()
    if not hasattr(session, "workflows"):
        raise TypeError(f"{function}: session: expected an open session, got {session!r:.80}.")


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def workflow(
    function: Callable[Concatenate[Workflow, ArgumentsP], Coroutine[Any, Any, ReturnT]],
) -> WorkflowDefinition[ArgumentsP, ReturnT]:
    """Make a workflow from an async function whose first parameter is a `Workflow`.

    ```python
    @shoal.workflow
    async def review(flow: shoal.Workflow, files: list[str]) -> str:
        notes = await flow.map(reviewer, [f"Review {file}" for file in files])
        return await flow.agent(writer, "Summarize: " + "; ".join(notes))
    ```
    """
    return WorkflowDefinition(function)
