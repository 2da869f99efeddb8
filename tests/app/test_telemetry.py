"""OpenTelemetry: the spans and metrics of a run, and no cost when it is off."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import server_scripts

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shoal
from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from otlp_collector import run_collector
from session_helpers import collect_events, open_session
from shoal.app.runtime.session_telemetry import is_content_capture_enabled, is_telemetry_enabled
from shoal.app.settings.settings import load_settings
from shoal.app.telemetry.otlp_export import TelemetryPipeline
from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.conversation.model_requests import ModelReply
from shoal.core.errors import BadRequest
from shoal.models.scripted_model import ScriptedModel
from team_scripts import send_message, spawn_member

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class RecordedTelemetry:
    """Spans and metrics of a session, in memory."""

    def __init__(self, session: shoal.Session, **more: Any) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracing = TracerProvider(shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        exports = TelemetryPipeline(tracing.get_tracer("test"), meters.get_meter("test"))
        given = {"provider": lambda _: "scripted", **more}
        self.teller = TelemetrySpanRecorder(
            exports,
            session=session.id,
            lead=session.agent.identity,
            clock=session.agent.clock,
            **given,
        )
        session.subscribe(self.teller.record_event)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def find_span(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def points(self, metric: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        found = (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics)
        return [point for each in found if each.name == metric for point in each.data.data_points]


def get_parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def make_reply(text: str, **usage: int) -> ModelReply:
    message = Message(role="assistant", content=(TextBlock(text=text),))
    return ModelReply(message=message, usage=Usage(**usage), stop_reason="end_turn", model="")


async def test_turns_requests_and_tools_are_nested_spans(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seven")
    reads = call_tool("Read", "call-1", file_path=str(tmp_path / "a.txt"))
    model = ScriptedModel(
        [reads, make_reply("Seven.", input_tokens=10, output_tokens=4, cache_read_input_tokens=5)]
    )
    async with open_session(tmp_path, model) as session:
        recorded = RecordedTelemetry(session)
        await collect_events(session.run("What does it say?"))
    turn, tool = recorded.find_span("invoke_agent lead"), recorded.find_span("execute_tool Read")
    chats = [span for span in recorded.spans if span.name.startswith("chat ")]
    assert len(chats) == 2
    assert turn.parent is None
    for span in (tool, *chats):
        assert get_parent_id(span) == turn.context.span_id
    attributes = dict(chats[-1].attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == attributes["gen_ai.system"] == "scripted"
    assert attributes["gen_ai.request.model"] == session.agent.model.card.id
    assert attributes["gen_ai.response.model"] == session.agent.model.card.id
    assert attributes["gen_ai.usage.input_tokens"] == 15
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["gen_ai.agent.name"] == attributes["gen_ai.agent.id"] == "lead"
    assert attributes["gen_ai.conversation.id"] == session.id
    done = dict(tool.attributes or {})
    assert (done["gen_ai.tool.name"], done["gen_ai.tool.call.id"]) == ("Read", "call-1")
    assert (turn.attributes or {})["gen_ai.operation.name"] == "invoke_agent"
    assert not any("error.type" in (span.attributes or {}) for span in recorded.spans)


async def test_the_span_of_an_agent_is_a_child_of_its_call(tmp_path: Path) -> None:
    parts = script_agents(
        lead=[spawn_agent("scout, look", "spawn"), "Over."], scout=[call_tool("Glob", pattern="*"), "Found."]
    )
    async with open_session(tmp_path, parts) as session:
        recorded = RecordedTelemetry(session)
        await collect_events(session.run("lead"))
    call = recorded.find_span("execute_tool Agent")
    (scout,) = [s for s in recorded.spans if s.name.startswith("invoke_agent") and s.parent is not None]
    assert get_parent_id(scout) == call.context.span_id
    assert get_parent_id(recorded.find_span("execute_tool Glob")) == scout.context.span_id
    assert len({span.context.trace_id for span in recorded.spans}) == 1
    exported = (scout.attributes or {})["gen_ai.agent.id"]
    assert exported != "lead"


async def test_tokens_time_and_dollars_are_counted_by_agent(tmp_path: Path) -> None:
    card = ModelCard(id="m", provider="scripted", price=TokenPrice(input=1_000_000, output=2_000_000))
    reply_counts = {"lead": 0, "scout": 0}

    def choose_reply(request: Any) -> Any:
        agent_name = request.messages[0].text.split()[0].rstrip(",")
        reply_counts[agent_name] += 1
        if agent_name == "lead" and reply_counts[agent_name] == 1:
            return spawn_agent("scout, look", "spawn")
        return make_reply("Done.", input_tokens=3, output_tokens=1)

    async with open_session(tmp_path, ScriptedModel(choose_reply, card=card)) as session:
        recorded = RecordedTelemetry(session)
        await collect_events(session.run("lead"))
    by_agent: dict[str, dict[str, float]] = {}
    for point in recorded.points("gen_ai.client.token.usage"):
        name = point.attributes["gen_ai.agent.name"]
        by_agent.setdefault(name, {})[point.attributes["gen_ai.token.type"]] = point.sum
    (scout,) = [name for name in by_agent if name != "lead"]
    assert by_agent[scout] == {"input": 3, "output": 1}
    dollars = {p.attributes["gen_ai.agent.name"]: p.value for p in recorded.points("shoal.cost")}
    assert dollars[scout] == pytest.approx(5.0)
    assert sum(p.count for p in recorded.points("gen_ai.client.operation.duration")) == 3


async def test_a_failure_is_an_error_span_with_its_kind_but_no_text(tmp_path: Path) -> None:
    def fails(_: Any) -> Any:
        raise BadRequest("the secret plan was refused", provider="p", model="m")

    reads = call_tool("Read", "c1", file_path=str(tmp_path / "nowhere"))
    lines = iter([reads, call_tool("Bash", "c2", command="touch x"), fails])

    def choose_reply(request: Any) -> Any:
        line = next(lines)
        return line(request) if callable(line) else line

    async with open_session(tmp_path, ScriptedModel(choose_reply), skip_permissions=False) as session:
        recorded = RecordedTelemetry(session)
        await collect_events(session.run("secret plan"))
    kinds = {span.name: (span.attributes or {}).get("error.type") for span in recorded.spans}
    assert kinds["execute_tool Read"] == "tool_error"
    assert kinds["execute_tool Bash"] == "permission_denied"
    assert kinds["invoke_agent lead"] == "model_error"
    assert "secret plan" not in " ".join(span.to_json() for span in recorded.spans)


async def test_message_content_is_exported_only_on_request_and_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "kestrel4heron6plover8")
    (tmp_path / "a.txt").write_text("the tide is kestrel4heron6plover8 high")
    for wanted in (False, True):
        model = ScriptedModel([call_tool("Read", "c", file_path=str(tmp_path / "a.txt")), "High tide."])
        async with open_session(tmp_path, model) as session:
            secrets = session.runtime.settings.secret_redactor if wanted else None
            recorded = RecordedTelemetry(session, secrets=secrets)
            await collect_events(session.run("How is the tide?"))
        exported = " ".join(span.to_json() for span in recorded.spans)
        for words in ("How is the tide?", "High tide.", "the tide is"):
            assert (words in exported) == wanted, words
        assert "kestrel4" not in exported


async def test_spans_open_at_session_end_are_cancelled(tmp_path: Path) -> None:
    gate = ToolGate()
    async with open_session(tmp_path, ScriptedModel([call_tool("Gate")]), tools=[gate.tool]) as session:
        recorded = RecordedTelemetry(session)
        turn = session.run("go")
        await asyncio.wait_for(gate.is_reached.wait(), 30)
        await session.interrupt()
        await collect_events(turn)
    call = recorded.find_span("execute_tool Gate")
    assert (call.attributes or {})["error.type"] == "cancelled"
    assert recorded.find_span("invoke_agent lead").end_time


async def test_an_existing_trace_is_continued(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(["Hi."])) as session:
        recorded = RecordedTelemetry(session, trace=PARENT)
        await collect_events(session.run("go"))
    turn = recorded.find_span("invoke_agent lead")
    assert f"{turn.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{get_parent_id(turn):016x}" == PARENT.split("-")[2]


async def test_a_session_exports_over_otlp_to_the_standard_variables_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("TRACEPARENT", PARENT)
        async with open_session(
            tmp_path, ScriptedModel([make_reply("Hi.", input_tokens=3, output_tokens=1)])
        ) as session:
            await collect_events(session.run("a prompt of mine"))
        (turn,) = collector.find_spans("invoke_agent lead")
    assert (turn.trace, turn.parent) == (PARENT.split("-")[1], PARENT.split("-")[2])
    assert collector.services == {"shoal"}
    assert {p["gen_ai.agent.name"] for p in collector.metrics["gen_ai.client.token.usage"]} == {"lead"}
    assert "a prompt of mine" not in str(collector.spans)


async def test_a_member_process_continues_the_trace_of_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = {"type": "shutdown_request", "reason": "done"}
    lead: list[Any] = [
        call_tool("TeamCreate", team_name="crew"),
        spawn_member("ann"),
        "At work.",
        lambda body: (
            send_message("ann", close)
            if "All is well" in server_scripts.join_conversation(body)
            else "Waiting."
        ),
        "Asked.",
        "Over.",
    ]
    ann = [send_message("team-lead", "All is well.", "report"), "I am done.", server_scripts.approve_shutdown]
    async with run_collector() as collector, server_scripts.run_provider(monkeypatch, lead=lead, ann=ann):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with server_scripts.open_process_session(tmp_path) as session:
            await run_all_turns(session, "Go.")
    (call,) = collector.find_spans("execute_tool Agent")
    theirs = collector.find_spans("invoke_agent ann")
    assert theirs
    assert {span.parent for span in theirs} == {call.id}
    assert {span.trace for span in theirs} == {call.trace}
    assert {span.instance for span in theirs} != {call.instance}
    # Told once: by the process that did it.
    sent = [s for s in collector.spans if s.attributes.get("gen_ai.agent.name") == "ann"]
    assert {span.instance for span in sent} == {span.instance for span in theirs}
    assert any(span.name.startswith("chat ") for span in sent)
    names = {point["gen_ai.agent.name"] for point in collector.metrics["gen_ai.client.token.usage"]}
    assert names == {"lead", "ann"}


@pytest.mark.slow
async def test_an_unreachable_collector_neither_ends_nor_delays_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with asyncio.timeout(15):
        async with open_session(tmp_path, ScriptedModel(["Hi."])) as session:
            *_, finished = await collect_events(session.run("go"))
    assert finished.text == "Hi."
    assert capfd.readouterr().err == ""


async def test_disabled_telemetry_subscribes_nothing_and_imports_nothing(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(["Hi."])) as session:
        await collect_events(session.run("go"))
        assert not session.runtime.events._subscribers
    code = (
        "import sys, asyncio, shoal\n"
        "from shoal.models.scripted_model import ScriptedModel\n"
        "async def go():\n"
        "    async with shoal.open(model=ScriptedModel(['Hi.'])) as session:\n"
        "        [event async for event in session.run('go')]\n"
        "asyncio.run(go())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = await asyncio.to_thread(_run_python, code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
async def test_a_missing_extra_is_noted_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    code = (
        "import sys, asyncio, shoal\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from shoal.models.scripted_model import ScriptedModel\n"
        "async def go():\n"
        "    async with shoal.open(model=ScriptedModel(['Hi.'])) as session:\n"
        "        [event async for event in session.run('go')]\n"
        "        print(session.notes)\n"
        "asyncio.run(go())\n"
    )
    done = await asyncio.to_thread(_run_python, code, tmp_path)
    assert "pip install 'shoal[otel]'" in done.stdout, done.stderr


def _run_python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    ("env", "own", "wanted"),
    [
        ({}, {}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, {}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {}, True),
        ({"OTEL_TRACES_EXPORTER": "none"}, {}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, {}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, {"enabled": False}, False),
        ({}, {"enabled": True}, True),
    ],
)
def test_environment_variables_or_the_setting_enable_telemetry(
    tmp_path: Path, env: Any, own: Any, wanted: bool
) -> None:
    given = json.dumps({"shoal": {"telemetry": own}})
    settings = load_settings(
        cwd=tmp_path, environ={"SHOAL_HOME": str(tmp_path), **env}, given=given, managed=()
    )
    assert is_telemetry_enabled(settings) == wanted


def test_a_project_cannot_enable_telemetry_or_content_export(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        json.dumps({"shoal": {"telemetry": {"enabled": True, "content": True}}})
    )
    load: Callable[..., Any] = lambda **env: load_settings(  # noqa: E731
        cwd=tmp_path, environ={"SHOAL_HOME": str(tmp_path / "home"), **env}, managed=()
    )
    assert not is_telemetry_enabled(load())
    assert not is_content_capture_enabled(load())
    assert is_content_capture_enabled(load(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true"))
