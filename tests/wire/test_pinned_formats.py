"""The tags and field names of everything that Shoal writes for somebody else to read.

`pinned_formats.json` holds them as they are on disk, on sockets and in JSON output. A class can be renamed
freely; a renamed tag or field makes files and programs of today unreadable, and fails here. To accept a
deliberate change, run `FORMATS=write make test ARGS="-k pinned_formats"` and read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TypeAlias, get_args

import msgspec.inspect as inspected
import pytest
from msgspec import Struct

import shoal
from reference_pages.tools import _collect_tools
from shoal.app.agents.member_bootstrap import (
    AgentJobBootstrap,
    InheritedExtensionOptions,
    InheritedMemberOptions,
    InheritedModelOptions,
    InheritedPermissionOptions,
    LeadPaths,
    MemberBootstrap,
)
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.models.model_probe import ModelProbeResult
from shoal.app.reports.agent_report import EffectiveAgentProperty
from shoal.app.reports.hook_report import HookReport, HookReportRow
from shoal.app.reports.model_report import ModelProviderReportRow, ModelReport, ModelReportRow
from shoal.app.reports.permission_report import PermissionReport, PermissionRuleReportRow
from shoal.app.reports.plugin_report import PluginReportRow
from shoal.app.run_access.background_runs import BackgroundRunResult, BackgroundRunStatus
from shoal.app.run_view.view_rows import (
    CumulativeSpendPoint,
    RunViewAgentRow,
    RunViewCostRow,
    RunViewMailRow,
    RunViewNoteRow,
    RunViewPhase,
    RunViewQuestionRow,
    RunViewSummaryRow,
    RunViewTaskRow,
    RunViewWorkflowRow,
    ViewDelta,
)
from shoal.app.settings.settings_listing import EffectiveSettingRow, EscalationTrustRow
from shoal.app.teams.team_export import ExportedMember, ExportedTaskChange
from shoal.core.agents.agent_definitions import DefinitionProblem, DefinitionSource
from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.agents.schedules import Schedule
from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions
from shoal.core.agents.subagents import (
    AgentMessageDeliveryReceipt,
    AgentResult,
    AgentStatusSnapshot,
    AgentWorkEvidence,
    ResolvedAgentSettings,
    ResourceRequest,
    RetainedWorktreeWork,
    ShellCommandResult,
    SpawnRequest,
)
from shoal.core.agents.worktrees import MachineCheckoutPaths, WorktreeOwnerProcess, WorktreeRecord
from shoal.core.budgets.limits import BudgetLimits, BudgetRefusal
from shoal.core.budgets.usage import LongPromptPrice, ModelCard, TokenPrice, Usage, UsageAndCostTotals
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Base64ImageSource, BaseContentBlock, Message, UrlImageSource
from shoal.core.conversation.model_requests import ModelReply, ModelRequest, ToolSchema, WebSearchOptions
from shoal.core.errors import ModelError
from shoal.core.events import JournaledEvent, LiveEvent
from shoal.core.extensions.mcp_servers import McpServerStatus
from shoal.core.permissions.permission_changes import PermissionSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import Answer, ChoiceOption, MultipleChoice, Question
from shoal.core.teams.mail_bodies import (
    MailedPermissionGrant,
    MailedPermissionRule,
    PermissionUpdate,
    _MailBody,
)
from shoal.core.teams.team_templates import TeamTemplateProblem, TeamTemplateSource
from shoal.models.catalogue import LongPromptPriceEntry, ModelCatalogueEntry, _ModelCatalogueData
from shoal.models.replay_model import RecordedModelExchange
from shoal.policy.permission_explanation import PermissionExplanation, ShellCommandPartExplanation
from shoal.surfaces.web.board_routes import NewTaskRequestBody, TaskChangeRequestBody
from shoal.surfaces.web.control_routes import (
    SendMessageRequestBody,
    SetPermissionModeRequestBody,
    TargetAgentRequestBody,
)
from shoal.surfaces.web.live_agent_stream import LiveAgentDeltaPayload, TranscriptGrownPayload
from shoal.surfaces.web.open_questions import WebOpenQuestionRow
from shoal.surfaces.web.run_index import WebRunListRow
from shoal.surfaces.web.transcript_index import WebTranscriptPage
from shoal.team.channel.lead_channel import BudgetLimitSet
from shoal.testing.mock_replies import ReplyFault
from shoal.testing.scripted_server import MockServerScriptStep
from shoal.tools.file_tools import TodoItem
from shoal.tools.message_tool import _StructuredMessage
from shoal.tools.plan_tools import PlannedToolUseInput
from shoal.tools.question_tool import UserQuestionInput, UserQuestionOptionInput
from shoal.wire import (
    hook_output_codec,
    mail_codec,
    roster_codec,
    settings_codec,
    task_codec,
    transcript_codec,
)
from shoal.wire.checkpoint_codec import CheckpointFileChange, CheckpointUndoMark
from shoal.wire.control_codec import EventSubscriptionGap, RunControlCommand, RunControlResponse
from shoal.wire.journal_codec import _JournalLineTimestampSchema
from shoal.wire.member_channel_codec import MessageFromLead, MessageFromMember
from shoal.wire.model_script_codec import ModelScriptOptions, ModelScriptStep, ScriptedToolCall
from shoal.wire.stream_output_codec import (
    ModelUsageTotals,
    OutputStreamLine,
    RunResultPermissionDenial,
    RunResultSpending,
    RunResultWork,
)
from shoal.wire.stream_task_codec import AgentTaskUsage
from shoal.wire.trust_codec import TrustDecision
from shoal.wire.workflow_step_codec import ScriptMessage
from shoal.workspaces.checkpoints import ChangedFile, FileUndoReport, TurnFileChanges, UnrestoredFile

PINNED = Path(__file__).with_name("pinned_formats.json")
Kind: TypeAlias = type[Struct]
Table: TypeAlias = dict[str, dict[str, list[str]]]


def _find_literals(kind: inspected.Type) -> Iterator[str]:
    """Yield the words that a field may hold, where it is a closed set of them."""
    match kind:
        case inspected.LiteralType(values=values):
            yield from map(str, values)
        case inspected.UnionType(types=types):
            for each in types:
                yield from _find_literals(each)
        case inspected.CollectionType(item_type=item) | inspected.VarTupleType(item_type=item):
            yield from _find_literals(item)


def _list_literals(kind: Kind, name: str) -> list[str]:
    info = inspected.type_info(kind)
    assert isinstance(info, inspected.StructType)
    return next((sorted(_find_literals(each.type)) for each in info.fields if each.encode_name == name), [])


def _find_leaf_classes(base: Kind) -> Iterator[Kind]:
    """Yield the classes below `base` that have no class below them."""
    for kind in base.__subclasses__():
        if kind.__subclasses__():
            yield from _find_leaf_classes(kind)
        else:
            yield kind


def _group_by_tag(kinds: Iterable[Kind]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for kind in dict.fromkeys(kinds):
        tag = str(kind.__struct_config__.tag)
        assert tag not in found, f"{kind} and {found[tag]} have the tag {tag!r}"
        found[tag] = kind
    return found


def _group_by_subtype(kinds: Iterable[Kind]) -> dict[str, Kind]:
    """Return lines of stream-json by type and subtype: many share the type `system`."""
    return {
        "/".join((str(kind.__struct_config__.tag), *_list_literals(kind, "subtype"))): kind for kind in kinds
    }


FORMATS: dict[str, Mapping[str, Kind]] = {
    "journal": _group_by_tag(_find_leaf_classes(JournaledEvent)),
    "journal line": {"stamp": _JournalLineTimestampSchema},
    "live events": _group_by_tag(_find_leaf_classes(LiveEvent)),
    "event parts": {
        "completion": AgentResult,
        "evidence": AgentWorkEvidence,
        "command": ShellCommandResult,
        "kept work": RetainedWorktreeWork,
        "schedule": Schedule,
        "shell": BackgroundShell,
        "shell end": BackgroundShellResult,
        "usage": Usage,
    },
    "control": _group_by_tag(_find_leaf_classes(RunControlCommand)),
    "control answers": {
        "response": RunControlResponse,
        "gap": EventSubscriptionGap,
        "agent": AgentStatusSnapshot,
        "delivery": AgentMessageDeliveryReceipt,
    },
    "member protocol, up": _group_by_tag(get_args(MessageFromMember)),
    "member protocol, down": _group_by_tag(get_args(MessageFromLead)),
    "member protocol, parts": {
        "bootstrap": MemberBootstrap,
        "paths of the lead": LeadPaths,
        "paths of a checkout": MachineCheckoutPaths,
        "inbox item": InboxItem,
        "agent job": AgentJobBootstrap,
        "options": InheritedMemberOptions,
        "permission options": InheritedPermissionOptions,
        "model options": InheritedModelOptions,
        "extension options": InheritedExtensionOptions,
        "order": SpawnRequest,
        "resources": ResourceRequest,
        "resolved": ResolvedAgentSettings,
        "budget": BudgetLimitSet,
        "limits": BudgetLimits,
        "refusal": BudgetRefusal,
        "model": ModelCard,
        "price": TokenPrice,
        "price of long prompts": LongPromptPrice,
    },
    "questions": _group_by_tag(get_args(Question)),
    "answers": _group_by_tag(get_args(Answer)),
    "question parts": {"choice": MultipleChoice, "option": ChoiceOption, "rule": SuggestedPermissionRule},
    "permission updates": _group_by_tag(get_args(PermissionSuggestion)),
    "content blocks": _group_by_tag(_find_leaf_classes(BaseContentBlock)),
    "image sources": _group_by_tag((Base64ImageSource, UrlImageSource)),
    "transcript": {"message": Message, "answer": transcript_codec._ApiAssistantMessage},
    "mail": {"message": mail_codec._MailInboxEntrySchema},
    "mail bodies": _group_by_tag(_find_leaf_classes(_MailBody)),
    "mail body updates": _group_by_tag(get_args(PermissionUpdate)),
    "mail body parts": {"granted": MailedPermissionGrant, "rule": MailedPermissionRule},
    "team file": {
        "team": roster_codec._RosterFileSchema,
        "whole": roster_codec._RosterWithValidMembersSchema,
        "member": roster_codec._RosterMemberSchema,
        "own fields of a member": roster_codec._OwnMemberFieldsSchema,
        "resources of a member": ResourceRequest,
    },
    "tasks": {"task": task_codec._TaskSchema},
    # One flat object: test_subagent_metadata.py.
    "sub-agents": {"meta": SubagentMetadata, "origin": SubagentOrigin, "restrictions": SubagentRestrictions},
    "checkpoints": {"change": CheckpointFileChange, "undone": CheckpointUndoMark},
    "worktrees": {"record": WorktreeRecord, "owner": WorktreeOwnerProcess},
    "trust": {"decision": TrustDecision},
    "settings": {
        "document": settings_codec.SettingsSchema,
        "document, read per file": settings_codec.PerFileSettingsSchema,
        "permissions": settings_codec.PermissionSettings,
        "shoal": settings_codec.ShoalSettings,
        "attribution": settings_codec.AttributionSettings,
        "sandbox": settings_codec.SandboxSettings,
        "cluster": settings_codec.ClusterSettings,
        "telemetry": settings_codec.TelemetrySettings,
        "agent limits": settings_codec.AgentLimitSettings,
        "model": settings_codec.ModelSettings,
    },
    "hook output": {
        "output": hook_output_codec._HookOutputSchema,
        "specific": hook_output_codec._EventSpecificHookOutputSchema,
        "answer": hook_output_codec._HookPermissionAnswerSchema,
    },
    "stream-json": _group_by_subtype(_find_leaf_classes(OutputStreamLine)),
    "stream-json parts": {
        "model usage": ModelUsageTotals,
        "denial": RunResultPermissionDenial,
        # On the line of the result itself: test_stream_json.py.
        "result, work": RunResultWork,
        "result, spending": RunResultSpending,
        "task usage": AgentTaskUsage,
    },
    "run view": {
        "frame": ViewDelta,
        "run": RunViewSummaryRow,
        "agent": RunViewAgentRow,
        "task": RunViewTaskRow,
        "letter": RunViewMailRow,
        "question": RunViewQuestionRow,
        "cost": RunViewCostRow,
        "spend": CumulativeSpendPoint,
        "note": RunViewNoteRow,
        "workflow": RunViewWorkflowRow,
        "phase": RunViewPhase,
    },
    "workflow scripts": _group_by_tag(get_args(ScriptMessage)),
    "web": {
        "run": WebRunListRow,
        "question": WebOpenQuestionRow,
        "transcript": WebTranscriptPage,
        "delta": LiveAgentDeltaPayload,
        "grown": TranscriptGrownPayload,
        "new task": NewTaskRequestBody,
        "task change": TaskChangeRequestBody,
        "new mode": SetPermissionModeRequestBody,
        "agent": TargetAgentRequestBody,
        "words": SendMessageRequestBody,
    },
    "command output": {
        "doctor fact": DoctorDiagnostic,
        "agent fact": EffectiveAgentProperty,
        "definition problem": DefinitionProblem,
        "definition source": DefinitionSource,
        "template problem": TeamTemplateProblem,
        "template origin": TeamTemplateSource,
        "setting": EffectiveSettingRow,
        "setting with trust": EscalationTrustRow,
        "hooks": HookReport,
        "hook": HookReportRow,
        "models": ModelReport,
        "model": ModelReportRow,
        "provider": ModelProviderReportRow,
        "model trial": ModelProbeResult,
        "permissions": PermissionReport,
        "permission rule": PermissionRuleReportRow,
        "explanation": PermissionExplanation,
        "explained part": ShellCommandPartExplanation,
        "plugin": PluginReportRow,
        "mcp server": McpServerStatus,
        "team person": ExportedMember,
        "team task change": ExportedTaskChange,
        "spent": UsageAndCostTotals,
        "undo": FileUndoReport,
        "undo, turn": TurnFileChanges,
        "undo, file": ChangedFile,
        "undo, left alone": UnrestoredFile,
    },
    "mcp tools": {"run status": BackgroundRunStatus, "run result": BackgroundRunResult},
    "tool input parts": {
        "question": UserQuestionInput,
        "question option": UserQuestionOptionInput,
        "todo": TodoItem,
        "plan prompt": PlannedToolUseInput,
    },
    "tool input messages": _group_by_tag(get_args(_StructuredMessage)),
    "recordings": {
        "exchange": RecordedModelExchange,
        "request": ModelRequest,
        "web search": WebSearchOptions,
        "reply": ModelReply,
        "tool": ToolSchema,
    },
    "scripts": {
        "step": ModelScriptStep,
        "server step": MockServerScriptStep,
        "call": ScriptedToolCall,
        "voice": ModelScriptOptions,
    },
    "script faults": _group_by_tag(_find_leaf_classes(ReplyFault)),
    "model catalogue": {
        "catalogue": _ModelCatalogueData,
        "model": ModelCatalogueEntry,
        "long prompts": LongPromptPriceEntry,
    },
}


def _describe_fields(kind: Kind) -> list[str]:
    """Return the tag and the encoded fields, each with the words it may hold where those are a closed set."""
    info = inspected.type_info(kind)
    assert isinstance(info, inspected.StructType)
    named = ((each.encode_name, sorted(_find_literals(each.type))) for each in info.fields)
    tag = [f"{info.tag_field}: {info.tag}"] if info.tag_field else []
    return tag + [f"{name}: {' | '.join(words)}" if words else name for name, words in named]


def _find_nested_structs(kind: Any) -> Iterator[Kind]:
    """Yield every struct that is encoded as a part of `kind`."""
    waiting, seen = [inspected.type_info(kind)], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, inspected.StructType):
            if each.cls in seen:
                continue
            seen.add(each.cls)
            yield each.cls
            waiting += [field.type for field in each.fields]
        elif isinstance(each, inspected.UnionType):
            waiting += each.types
        elif isinstance(each, inspected.DictType):
            waiting += [each.key_type, each.value_type]
        elif isinstance(each, inspected.TupleType):
            waiting += each.item_types
        elif isinstance(each, inspected.CollectionType | inspected.VarTupleType):
            waiting.append(each.item_type)


def _collect_formats() -> Table:
    found = {
        group: {label: _describe_fields(kind) for label, kind in kinds.items()}
        for group, kinds in FORMATS.items()
    }
    return found | {
        "tool input": _list_tool_inputs(),
        "mcp tool input": _list_mcp_inputs(),
        "model test": {"error": sorted(_find_error_names(ModelError))},
    }


def _list_tool_inputs() -> dict[str, list[str]]:
    """Return the parameters of the built-in tools as shown to a model: names of Python arguments."""
    schema_of = {
        name: schema for schemas in _collect_tools().schemas.values() for name, schema in schemas.items()
    }
    return {name: list(schema_of[name].input_schema.get("properties", {})) for name in sorted(schema_of)}


def _list_mcp_inputs() -> dict[str, list[str]]:
    # The import takes a second, and every worker collects this module.
    from shoal.surfaces.mcp.mcp_server import TOOLS, TeamMcpServerTools

    return {name: list(signature(getattr(TeamMcpServerTools, name)).parameters)[1:] for name in TOOLS}


def _find_error_names(base: type[ModelError]) -> Iterator[str]:
    """Yield the names that `shoal models test --json` gives as `error`: they are those of classes."""
    yield base.__name__
    for kind in base.__subclasses__():
        yield from _find_error_names(kind)


def _write_formats(table: Table) -> None:
    lines = [
        f" {json.dumps(group)}: {{\n"
        + ",\n".join(f"  {json.dumps(label)}: {json.dumps(fields)}" for label, fields in formats.items())
        + "\n }"
        for group, formats in table.items()
    ]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def test_every_pinned_format_is_unchanged() -> None:
    now = _collect_formats()
    if os.environ.get("FORMATS") == "write":
        _write_formats(now)
    pinned: Table = json.loads(PINNED.read_text())
    assert list(now) == list(pinned)
    changed = {
        f"{group}: {label}": {"pinned": pinned[group].get(label), "now": now[group].get(label)}
        for group in pinned
        for label in pinned[group] | now[group]
        if pinned[group].get(label) != now[group].get(label)
    }
    assert not changed, json.dumps(changed, indent=1)


@pytest.mark.parametrize("group", FORMATS)
def test_every_part_of_a_pinned_format_is_pinned_too(group: str) -> None:
    missing = {
        part for kind in FORMATS[group].values() for part in _find_nested_structs(kind)
    } - _collect_pinned_structs()
    assert not missing, f"parts of {group} that no table above names: {missing}"


def test_every_struct_with_a_tag_is_pinned() -> None:
    for module in walk_packages(shoal.__path__, "shoal."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    tagged = {kind for kind in _find_leaf_classes(Struct) if kind.__struct_config__.tag is not None}
    assert {kind for kind in tagged if kind.__module__.startswith("shoal.")} <= _collect_pinned_structs()


def _collect_pinned_structs() -> set[Kind]:
    return {kind for kinds in FORMATS.values() for kind in kinds.values()}
