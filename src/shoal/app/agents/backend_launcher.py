"""Launches the teammates of a session on a backend, which it chooses and creates."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.member_setup import resolve_launch_permission_mode
from shoal.app.hooks.hook_sources import list_machine_guards
from shoal.app.model_notices import format_session_notice
from shoal.app.models.child_model import format_qualified_model_name
from shoal.app.options import Options
from shoal.app.settings.provider_credentials import ACCESS_VARIABLES
from shoal.app.settings.settings import Settings
from shoal.core.agents.subagents import ResourceRequest, SpawnRequest
from shoal.core.errors import (
    AgentProcessNotStarted,
    AgentRequestRefused,
    AgentUnusable,
    InvalidAgentDefinition,
    ProcessError,
    ShoalError,
    UnknownAgentType,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import AgentName
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.member_backends import (
    AGENT_ENVIRONMENT_MARKS,
    MemberBackend,
    MemberFiles,
    MemberLaunchArgs,
    MemberProcess,
    MemberProcessLaunchSpec,
    TerminalMultiplexer,
)
from shoal.core.teams.roster import BackendType, RosterEntry
from shoal.core.text.redaction import is_secret_variable_name
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.stores.store_choice import get_shared_address, to_shared_store

if TYPE_CHECKING:
    from shoal.app.agents.cluster_files import ClusterFiles
    from shoal.app.agents.member_bootstrap import AgentJobBootstrap
    from shoal.app.runtime.runtime import Runtime
    from shoal.backends.process_backend import ProcessBackend
    from shoal.policy.permission_engine import PermissionEngine
    from shoal.wire.trust_codec import TrustDecision

MEMBER_ENTRY_POINT = "shoal.app.session.member_main:main"
CLUSTER_MEMBER_ENTRY_POINT = "shoal.app.session.ray_member_main:main"
CLUSTER_HOST_ENTRY_POINT = "shoal.app.session.ray_member_main:host_main"
LOG_DIRECTORY = "members"
_VIEWER_MODULE = "shoal.surfaces.cli.pane_view"
_WARMUP_MODULE = "shoal.app.session.warmup"
_PROVIDER_API_MODULES = (
    "shoal.models.chat_api",
    "shoal.models.messages_api",
    "shoal.models.responses_api",
)


def list_preloaded_modules() -> tuple[str, ...]:
    """List the modules that the fork server imports; most teammates use the same provider API as the lead."""
    return (_WARMUP_MODULE, *(name for name in _PROVIDER_API_MODULES if name in sys.modules))


class BackendMemberLauncher:
    """Launches members; it chooses the backend for each one, because a person may have moved into tmux."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._backend_pool = MemberBackendPool(runtime)
        self._noted_kinds: set[str] = set()

    def is_foreign_agent_type(self, kind: str) -> bool:
        return kind in self._runtime.settings.own.teammate_programs

    async def choose_backend(self, kind: str) -> BackendType:
        """Return the configured backend; there is no fallback.

        Raises `AgentRequestRefused` if it is unavailable.
        """
        runtime, foreign = self._runtime, self.is_foreign_agent_type(kind)
        backend = choose_backend_type(runtime.settings, attended=runtime.options.attended, foreign=foreign)
        if backend != "ray":
            self._note_unused_resources(kind)
        if backend == "in-process":
            return backend
        reason = (
            ("" if foreign else self._explain_in_process_only(kind))
            or self._explain_no_cluster(backend)
            or await self._backend_pool.explain_unavailable(backend)
        )
        if reason and runtime.settings.own.teammate_mode == "auto" and not foreign:
            return "in-process"
        if reason:
            raise AgentRequestRefused(format_session_notice("backend_unavailable", reason=reason))
        return backend

    async def prepare_backend(self) -> None:
        backend = choose_backend_type(
            self._runtime.settings, attended=self._runtime.options.attended, foreign=False
        )
        if backend == "in-process" or self._explain_in_process_only() or self._explain_no_cluster(backend):
            return  # the launch of the member reports it
        if backend != "ray":
            self._runtime.processes.shells.prepare_snapshot()
        with suppress(ProcessError):  # the launch of the member reports it
            await self._backend_pool.get_backend(backend).start_setup()

    async def launch_member(
        self, entry: RosterEntry, request: SpawnRequest | None, *, mode: PermissionMode | None, call: str
    ) -> MemberProcess:
        runtime, backend = self._runtime, await self.choose_backend(entry.agent_type)
        if self.is_foreign_agent_type(entry.agent_type):
            self._refuse_unenforceable_restrictions(entry)
        if backend == "ray" and request is not None and request.isolation is not None:
            raise AgentRequestRefused(format_session_notice("isolation_on_cluster", name=entry.name))
        launch = MemberProcessLaunchSpec(
            launch_args=self._build_launch_args(entry, mode),
            cwd=self._resolve_member_cwd(entry),
            env={**runtime.settings.environ, **AGENT_ENVIRONMENT_MARKS},
            bootstrap=b""
            if self.is_foreign_agent_type(entry.agent_type)
            else self._build_bootstrap(entry, request, mode, call, backend),
            program=runtime.settings.own.teammate_programs.get(entry.agent_type, ()),
            split=runtime.settings.own.split_panes,
            resources=self._resolve_resources(entry.name, entry.agent_type, entry.resources),
        )
        try:
            return await self._backend_pool.get_backend(backend).spawn_member(launch)
        except ProcessError as error:
            self._backend_pool.forget_availability_checks()
            raise AgentProcessNotStarted(
                format_session_notice("teammate_not_started", name=entry.name, error=error)
            ) from error

    async def check_remote_agent(self, request: SpawnRequest) -> ResourceRequest:
        """Return what an agent on another machine needs. Raises `AgentRequestRefused` if it cannot run."""
        kind = request.kind or ""
        if reason := self._explain_no_cluster("ray") or self._explain_in_process_only(kind):
            raise AgentUnusable(format_session_notice("remote_agent_not_started", error=reason))
        if reason := await self._backend_pool.explain_unavailable("ray"):
            raise AgentRequestRefused(format_session_notice("remote_agent_not_started", error=reason))
        return self._resolve_resources(request.name or kind, kind, request.resources)

    async def launch_agent(
        self, job: AgentJobBootstrap, request: SpawnRequest, resources: ResourceRequest
    ) -> MemberProcess:
        """Start the process of an agent for one job on another machine. Raises `AgentRequestRefused`."""
        lead = self._runtime.agents.running.lead
        entry = RosterEntry(
            agent_id=job.agent,
            name=AgentName(job.agent),
            agent_type=request.kind or "",
            model=request.model or lead.model.card.id,
            cwd=str(lead.environment.workspace.root),
            joined_at=0,
        )
        bootstrap = self._build_bootstrap(entry, request, None, "", "ray")
        launch = MemberProcessLaunchSpec(
            launch_args=self._build_launch_args(entry, None),
            cwd=self._resolve_member_cwd(entry),
            env={},
            bootstrap=add_job_to_bootstrap(bootstrap, job),
            resources=resources,
        )
        try:
            return await self._backend_pool.get_backend("ray").spawn_member(launch)
        except ProcessError as error:
            self._backend_pool.forget_availability_checks()
            raise AgentRequestRefused(
                format_session_notice("remote_agent_not_started", error=error)
            ) from error

    async def find_stored_work(self, agent: AgentId) -> str:
        """Return the ref with the work of an agent on another machine; empty if there is none."""
        return await self._backend_pool.find_stored_work(agent)

    def _refuse_unenforceable_restrictions(self, entry: RosterEntry) -> None:
        """Refuse another program if the lead may use only some tools, which that program would not know.

        Denied tools are among its arguments; a list of the only tools, with patterns, is not.
        """
        restrictions = get_permission_engine(self._runtime.agents.running.lead).restrictions
        if restrictions.only:
            tools = ", ".join(dict.fromkeys(rule for rules in restrictions.only for rule in rules))
            program = shlex.join(self._runtime.settings.own.teammate_programs[entry.agent_type])
            raise AgentRequestRefused(
                format_session_notice(
                    "unenforceable_restrictions", name=entry.name, tools=tools, program=program
                )
            )

    def _find_definition_resources(self, kind: str) -> ResourceRequest | None:
        """Return the resources of a definition; None without one. Raises `InvalidAgentDefinition`."""
        if self.is_foreign_agent_type(kind):
            return None
        with suppress(UnknownAgentType):  # the start of the member reports it
            return self._runtime.config.definitions.find(kind).run.resources
        return None

    def _note_unused_resources(self, kind: str) -> None:
        """Say once that nothing checks the resources of a definition without a cluster."""
        resources: ResourceRequest | None = None
        if kind not in self._noted_kinds:
            with suppress(InvalidAgentDefinition):  # the start of the member reports it
                resources = self._find_definition_resources(kind)
        if resources is not None:
            self._noted_kinds.add(kind)
            self._runtime.events.note(
                f"The agent {kind} asks for {resources}, but teammates do not run on a cluster. Nothing "
                "reserves these resources on this machine."
            )

    def _resolve_resources(self, name: str, kind: str, requested: ResourceRequest | None) -> ResourceRequest:
        """Return what an agent needs: the resources of its call, then those of its definition.

        Raises `AgentRequestRefused` if they ask for different machines.
        """
        try:
            required = self._find_definition_resources(kind) or ResourceRequest()
        except InvalidAgentDefinition as error:
            raise AgentRequestRefused(
                format_session_notice("teammate_not_started", name=name, error=error)
            ) from error
        requested = requested or ResourceRequest()
        for label in requested.find_conflicting_labels(required):
            raise AgentRequestRefused(
                format_session_notice(
                    "conflicting_label",
                    name=name,
                    kind=kind,
                    label=label,
                    value=required.labels[label],
                    requested=requested.labels[label],
                )
            )
        return requested.add_missing(required)

    def _resolve_member_cwd(self, entry: RosterEntry) -> Path:
        """Return its directory, or the project root if its unused worktree was removed while it was idle."""
        cwd = Path(entry.cwd)
        return cwd if cwd.is_dir() else self._runtime.agents.running.lead.environment.workspace.root

    async def aclose(self) -> None:
        await self._backend_pool.aclose()

    def _explain_in_process_only(self, kind: str = "") -> str:
        """Return the reason why teammates must run in this process; empty if there is none."""
        options = self._runtime.options
        if self._runtime.config.store.url is None:
            return "a session that stores nothing on disk must run its teammates in its own process."
        if options.store is not None and get_shared_address(self._runtime.config.store) is None:
            return (
                "a teammate's process can open only a store in the home directory or in PostgreSQL. Leave "
                "out store=, "
                'or set shoal.teammate_mode to "in-process".'
            )
        if options.model is not None and not isinstance(options.model, str):
            return (
                "the model was passed as an object, which another process cannot use. Pass a model name, "
                'or set shoal.teammate_mode to "in-process".'
            )
        if (extras := self._runtime.agents.extras.get(kind)) is not None and extras.tools:
            names = ", ".join(tool.schema.name for tool in extras.tools)
            return (
                f"its Python tools ({names}) are only available in the program's own process. Set "
                'shoal.teammate_mode to "in-process".'
            )
        if options.tools or options.hooks:
            return (
                "the program's own tools and hooks are not available in other processes. Set "
                'shoal.teammate_mode to "in-process".'
            )
        return ""

    def _explain_no_cluster(self, backend: BackendType) -> str:
        """Return what a cluster needs but the settings do not specify; empty if nothing is missing."""
        if backend != "ray":
            return ""
        if self._runtime.settings.own.cluster.address is None:
            return (
                "no Ray cluster is configured. Specify its address in your own settings: "
                '{"shoal": {"cluster": {"address": "HOST:PORT"}}}'
            )
        if get_shared_address(self._runtime.config.store) is None:
            return (
                "teammates on other machines need a store that all machines can reach, but this session "
                "stores "
                "its files on this machine. Set shoal.store to postgresql://USER@HOST/DATABASE in your own "
                "settings."
            )
        settings, plugins = self._runtime.settings, self._runtime.config.plugins.build_hook_documents()
        guards = list_machine_guards(settings, plugins, sends_project=settings.own.cluster.files == "git")
        if guards and not settings.own.cluster.without_own_hooks:
            return format_session_notice("hooks_stay_here", places=", ".join(guards))
        return explain_unsafe_keys(settings)

    def _build_launch_args(
        self, entry: RosterEntry, requested_mode: PermissionMode | None
    ) -> MemberLaunchArgs:
        runtime = self._runtime
        permissions = get_permission_engine(runtime.agents.running.lead)
        mode, skip_permissions = resolve_launch_permission_mode(permissions, requested_mode)
        return MemberLaunchArgs(
            agent=AgentId(entry.agent_id),
            name=entry.name,
            team=entry.team,
            color=entry.color,
            session=self._runtime.agents.running.lead.identity.session,
            kind=entry.agent_type,
            model=entry.model,
            plan_mode_required=bool(entry.plan_mode_required),
            mode=mode,
            allowed=tuple(runtime.options.allowed_tools),
            disallowed=(*runtime.options.disallowed_tools, *self._list_inherited_denials(permissions)),
            skip_permissions=skip_permissions,
        )

    def _list_inherited_denials(self, permissions: PermissionEngine) -> tuple[str, ...]:
        """List the tools that members may not use: what the lead's definition and its own lead deny, too."""
        definition, membership = self._runtime.config.lead_agent, self._runtime.options.membership
        return (
            *(() if definition is None else definition.capabilities.disallowed_tools),
            *(() if membership is None else membership.denied_tools),
            *permissions.inherited_denials,
        )

    def _select_inherited_options(self, backend: BackendType) -> Options:
        """Return the options for a member's session; another machine gets only requested secrets.

        The environment and the files of the lead, which it does not have, must not change the model, and what
        these files forbid stays forbidden.
        """
        options, settings = self._runtime.options, self._runtime.settings
        if backend != "ray":
            return options
        if settings.own.cluster.send_keys:
            shown: str | None = add_provider_keys(settings)
        else:
            shown, withheld = remove_secret_variables(settings)
            if withheld and "--settings" not in self._noted_kinds:
                self._noted_kinds.add("--settings")
                self._runtime.events.note(
                    f"{', '.join(withheld)} in --settings stays on this machine. Set it on the other "
                    "machines."
                )
        return replace(
            options,
            model=settings.models.main if options.model is None else options.model,
            settings=add_restrictions(add_model_choice(shown, settings), settings),
        )

    def _list_trust_decisions(self) -> dict[str, TrustDecision]:
        root = self._runtime.agents.running.lead.environment.workspace.root
        return ProjectTrustFile(self._runtime.settings.home).list_project_decisions(root)

    def _build_bootstrap(
        self,
        entry: RosterEntry,
        request: SpawnRequest | None,
        mode: PermissionMode | None,
        call: str,
        backend: BackendType,
    ) -> bytes:
        from shoal.app.agents.member_bootstrap import (
            LeadPaths,
            MemberBootstrap,
            build_budget_limit_set,
            build_inherited_options,
            encode_member_bootstrap,
        )

        runtime, lead = self._runtime, self._runtime.agents.running.lead
        permissions, options = get_permission_engine(lead), self._select_inherited_options(backend)
        model = options.model if lead.model is runtime.lead.model else format_qualified_model_name(lead.model)
        telemetry, agent = runtime.agents.telemetry, AgentId(entry.agent_id)
        return encode_member_bootstrap(
            MemberBootstrap(
                name=entry.name,
                team=entry.team,
                order=request,
                mode=mode,
                call=call,
                session=lead.identity.session,
                paths=LeadPaths(
                    run=str(runtime.store.directory),
                    transcript=str(runtime.config.history.store.get_transcript_path(LEAD_ID) or ""),
                    snapshot=str(runtime.processes.shells.launcher.shell_snapshot_path or ""),
                ),
                rules=build_budget_limit_set(runtime.budget),
                answered=permissions.answers.updates,
                denied=self._list_inherited_denials(permissions),
                only=permissions.restrictions.only,
                trusted=self._list_trust_decisions() if backend == "ray" else {},
                opened=build_inherited_options(
                    options,
                    cwd=runtime.config.cwd,
                    model=model if isinstance(model, str) else None,
                    mode=permissions.mode,
                    seed=None if runtime.options.seed is None else runtime.agents.ids.random.getrandbits(63),
                    store=runtime.config.store,
                    trace="" if telemetry is None else telemetry.hand_off_agent_trace(agent, call),
                ),
            )
        )


class MemberBackendPool:
    """Backends of one session, created on first use; all start Shoal's own teammates in the same way."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._backends: dict[BackendType, MemberBackend] = {}
        self._usable: set[BackendType] = set()
        self._cluster_files: ClusterFiles | None = None

    async def find_stored_work(self, agent: AgentId) -> str:
        """Return the ref with the work that an agent sent back; empty if there is none."""
        if self._cluster_files is None:
            return ""
        session = self._runtime.agents.running.lead.identity.session
        return await self._cluster_files.find_work(session, agent)

    def get_backend(self, backend: BackendType) -> MemberBackend:
        if backend not in self._backends:
            match backend:
                case "process":
                    self._backends[backend] = self._create_process_backend()
                case "ray":
                    self._backends[backend] = self._create_ray_backend()
                case _:
                    self._backends[backend] = self._create_pane_backend(backend)
        return self._backends[backend]

    async def explain_unavailable(self, backend: BackendType) -> str:
        """Return why a backend is unavailable; success is cached until `forget_availability_checks`."""
        if backend in self._usable:
            return ""
        reason = await self.get_backend(backend).explain_unavailable()
        if not reason:
            self._usable.add(backend)
        return reason

    def forget_availability_checks(self) -> None:
        self._usable.clear()

    async def aclose(self) -> None:
        for backend in self._backends.values():
            await backend.aclose()

    def _create_process_backend(self) -> ProcessBackend:
        from shoal.backends.process_backend import ProcessBackend

        return ProcessBackend(
            self._runtime.processes.launcher,
            self._runtime.clock,
            entry=MEMBER_ENTRY_POINT,
            preload=(*list_preloaded_modules(), *((_VIEWER_MODULE,) if self._shows_panes_of_tmux() else ())),
            log_directory=self._runtime.store.directory / LOG_DIRECTORY,
        )

    def _shows_panes_of_tmux(self) -> bool:
        runtime = self._runtime
        backend = choose_backend_type(runtime.settings, attended=runtime.options.attended, foreign=False)
        return backend == "tmux"

    def _create_ray_backend(self) -> MemberBackend:
        from shoal.backends.member_listener import read_tls_files
        from shoal.backends.ray_backend import RayBackend, RayBackendSettings, RayEntryPoints

        cluster, store = self._runtime.settings.own.cluster, self._runtime.config.store
        assert cluster.address is not None
        return RayBackend(
            RayBackendSettings(
                address=cluster.address,
                lead_host=cluster.lead_host,
                cpus=cluster.cpus,
                members_per_process=cluster.members_per_process,
                tls=read_tls_files(self._runtime.settings.environ),
            ),
            self._runtime.processes.launcher,
            self._runtime.clock,
            entry_points=RayEntryPoints(member=CLUSTER_MEMBER_ENTRY_POINT, host=CLUSTER_HOST_ENTRY_POINT),
            end_lease=to_shared_store(store).end_lease,
            log_directory=self._runtime.store.directory / LOG_DIRECTORY,
            files=self._create_cluster_files() if cluster.files == "git" else None,
            report=self._runtime.events.note,
        )

    def _create_cluster_files(self) -> MemberFiles:
        self._cluster_files = create_cluster_files(self._runtime)
        return self._cluster_files

    def _create_pane_backend(self, backend: BackendType) -> MemberBackend:
        from shoal.backends.pane_backend import ForkedViewers, PaneBackend
        from shoal.backends.process_backend import ProcessBackend

        note, environ, clock = (
            self._runtime.events.note,
            self._runtime.settings.environ,
            self._runtime.clock,
        )
        panes: TerminalMultiplexer
        if backend == "iterm2":
            from shoal.backends.iterm2_panes import Iterm2PaneManager

            panes = Iterm2PaneManager(environ, clock)
        else:
            from shoal.backends.tmux_panes import TmuxPaneManager

            name = f"shoal-{self._runtime.agents.running.lead.identity.session[:8]}"
            panes = TmuxPaneManager(environ, self._runtime.processes.launcher, clock, session_name=name)
            if attach_command := panes.attach_command:
                note(f"Teammates run in tmux. Watch them: {shlex.join(attach_command)}")
        members = self.get_backend("process")
        assert isinstance(members, ProcessBackend)
        viewers = ForkedViewers(
            members, f"{_VIEWER_MODULE}:main", self._runtime.store.directory / LOG_DIRECTORY
        )
        return PaneBackend(
            panes,
            members,
            self._build_viewer_argv,
            clock,
            on_note=note,
            record_process=self._runtime.processes.launcher.record_process,
            forked_viewers=viewers if backend == "tmux" else None,
        )

    def _build_viewer_argv(self, launch_args: MemberLaunchArgs) -> tuple[str, ...]:
        return (sys.executable, "-m", "shoal", "view", launch_args.session, launch_args.name)


def create_cluster_files(runtime: Runtime) -> ClusterFiles:
    from shoal.app.agents.cluster_files import ClusterFiles
    from shoal.app.agents.work_record import WorkRecord
    from shoal.workspaces.git_runner import GitRunner

    environ, clock, report = runtime.settings.environ, runtime.clock, runtime.events.note
    history = runtime.config.history
    return ClusterFiles(
        runtime.agents.running.lead.environment.workspace.root,
        environ=environ,
        clock=clock,
        report=report,
        record=WorkRecord(GitRunner(environ, clock), history.store.open_work(), history.session, report),
        uncommitted=runtime.settings.own.cluster.uncommitted,
        uses_remote=runtime.settings.own.cluster.fetch_from_remote,
    )


async def restore_cluster_work(runtime: Runtime) -> None:
    """Recreate the refs with the work of agents on other machines that this repository lacks."""
    cluster = runtime.settings.own.cluster
    if cluster.address is None or cluster.files != "git" or get_shared_address(runtime.config.store) is None:
        return
    try:
        await create_cluster_files(runtime).restore_all_work()
    except ShoalError as error:
        # The start of an agent whose work is missing reports it again, and fails.
        runtime.events.note(f"The stored work of agents on other machines could not be restored: {error}")


def add_job_to_bootstrap(bootstrap: bytes, job: AgentJobBootstrap) -> bytes:
    from shoal.app.agents.member_bootstrap import decode_member_bootstrap, encode_member_bootstrap

    return encode_member_bootstrap(replace(decode_member_bootstrap(bootstrap), job=job))


def remove_secret_variables(settings: Settings) -> tuple[str | None, tuple[str, ...]]:
    """Return the settings of the command line without secrets, and the names of the secrets."""
    document = next((each for each in settings.documents if each.kind == "command line"), None)
    if document is None:
        return None, ()
    variables = document.raw.get("env")
    if not isinstance(variables, dict):
        return json.dumps(document.raw), ()
    withheld = tuple(name for name in variables if is_secret_variable_name(name))
    shown = {name: value for name, value in variables.items() if name not in withheld}
    return json.dumps({**document.raw, "env": shown}), withheld


def add_provider_keys(settings: Settings) -> str:
    """Return the settings of the command line without secrets, but with the keys of model providers.

    They reach the other machine in a message and stay in the memory of its process.
    """
    shown = json.loads(remove_secret_variables(settings)[0] or "{}")
    keys = {
        variable: value
        for name, variable in ACCESS_VARIABLES.items()
        if (value := getattr(settings.access, name)) is not None
    }
    return json.dumps({**shown, "env": {**shown.get("env", {}), **keys}})


def add_model_choice(document: str | None, settings: Settings) -> str | None:
    """Add to settings of the command line what the lead's names of models mean, and its choice for agents.

    They may come from variables and files that the other machine does not have.
    """
    names: dict[str, Any] = {}
    if settings.model_aliases:
        names["aliases"] = dict(settings.model_aliases)
    if settings.own.models:
        names["models"] = msgspec.to_builtins(settings.own.models)
    variables = (
        {} if settings.models.subagents is None else {"SHOAL_SUBAGENT_MODEL": settings.models.subagents}
    )
    if not names and not variables:
        return document
    shown = json.loads(document or "{}")
    shown["shoal"] = {**shown.get("shoal", {}), **names}
    shown["env"] = {**shown.get("env", {}), **variables}
    return json.dumps(shown)


def explain_unsafe_keys(settings: Settings) -> str:
    """Return why keys cannot be sent to other machines although the settings ask for it."""
    from shoal.backends.member_listener import read_tls_files

    try:
        is_encrypted = read_tls_files(settings.environ) is not None
    except ProcessError as error:
        return str(error)
    if settings.own.cluster.send_keys and not is_encrypted:
        return (
            "shoal.cluster.send_keys is true, but connections to the other machines are not encrypted, so no "
            "key is sent. Set RAY_USE_TLS=1, RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT on "
            "every machine, or remove send_keys and run shoal setup on every machine."
        )
    return ""


def choose_backend_type(settings: Settings, *, attended: bool, foreign: bool) -> BackendType:
    """Choose a backend: panes only if attended, `auto` only inside tmux; a foreign program needs a pane."""
    mode, environ = settings.own.teammate_mode, settings.environ
    if mode == "iterm2" and (attended or foreign):
        return "iterm2"
    if foreign or (mode == "tmux" and attended):
        return "tmux"
    if mode == "ray":
        return "ray"
    if mode == "auto":
        return "tmux" if attended and environ.get("TMUX") else "in-process"
    return "in-process" if mode == "in-process" else "process"


def add_restrictions(document: str | None, settings: Settings) -> str | None:
    """Add to settings of the command line the lead's rules that forbid or ask, from all its files.

    Allow rules are not added: each machine's own settings decide what needs no question there.
    """
    rules = settings.permissions.rules
    found = {"deny": [str(rule) for rule in rules.deny], "ask": [str(rule) for rule in rules.ask]}
    if not any(found.values()):
        return document
    shown = json.loads(document or "{}")
    given = shown.get("permissions", {})
    added = {kind: list(dict.fromkeys([*given.get(kind, ()), *texts])) for kind, texts in found.items()}
    return json.dumps({**shown, "permissions": {**given, **added}})
