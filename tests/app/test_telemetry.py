"""OpenTelemetry: what a run tells of itself, to whom, and that it is silent and free where nobody asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fleet
import shoal
from cast import Gate, agent, all_turns, cast, use
from collector import collecting
from crew_rig import drain, opened
from shoal.app.session.telemetry import is_wanted, shows_content
from shoal.app.settings.settings import load_settings
from shoal.app.telemetry.exporting import Exports
from shoal.app.telemetry.spans import Spans
from shoal.core.errors import BadRequest
from shoal.core.messages import Message, Text
from shoal.core.requests import Reply
from shoal.core.usage import ModelCard, Price, Usage
from shoal.models.scripted import ScriptedModel
from troupe import member, tell

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept:
    """What a session told, in memory."""

    def __init__(self, session: shoal.Session, **more: Any) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracing = TracerProvider(shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        exports = Exports(tracing.get_tracer("test"), meters.get_meter("test"))
        given = {"provider": lambda _: "scripted", **more}
        self.teller = Spans(
            exports,
            session=session.id,
            lead=session.agent.identity,
            clock=session.agent.clock,
            **given,
        )
        session.watch(self.teller.take)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def points(self, metric: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        found = (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics)
        return [point for each in found if each.name == metric for point in each.data.data_points]


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def spent(text: str, **usage: int) -> Reply:
    message = Message(role="assistant", content=(Text(text=text),))
    return Reply(message=message, usage=Usage(**usage), stop_reason="end_turn", model="")


async def test_a_turn_its_requests_and_its_tools_are_spans_within_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seven")
    reads = use("Read", "call-1", file_path=str(tmp_path / "a.txt"))
    model = ScriptedModel(
        [reads, spent("Seven.", input_tokens=10, output_tokens=4, cache_read_input_tokens=5)]
    )
    async with opened(tmp_path, model) as session:
        kept = Kept(session)
        await drain(session.run("What does it say?"))
    turn, tool = kept.named("invoke_agent lead"), kept.named("execute_tool Read")
    chats = [span for span in kept.spans if span.name.startswith("chat ")]
    assert len(chats) == 2
    assert turn.parent is None
    for span in (tool, *chats):
        assert parent_of(span) == turn.context.span_id
    said = dict(chats[-1].attributes or {})
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.provider.name"] == said["gen_ai.system"] == "scripted"
    assert said["gen_ai.request.model"] == session.agent.model.card.id
    assert said["gen_ai.response.model"] == session.agent.model.card.id
    assert said["gen_ai.usage.input_tokens"] == 15
    assert said["gen_ai.usage.cache_read.input_tokens"] == 5
    assert said["gen_ai.usage.output_tokens"] == 4
    assert said["gen_ai.agent.name"] == said["gen_ai.agent.id"] == "lead"
    assert said["gen_ai.conversation.id"] == session.id
    done = dict(tool.attributes or {})
    assert (done["gen_ai.tool.name"], done["gen_ai.tool.call.id"]) == ("Read", "call-1")
    assert (turn.attributes or {})["gen_ai.operation.name"] == "invoke_agent"
    assert not any("error.type" in (span.attributes or {}) for span in kept.spans)


async def test_an_agent_s_span_stands_within_the_call_that_started_it(tmp_path: Path) -> None:
    parts = cast(lead=[agent("scout, look", "spawn"), "Over."], scout=[use("Glob", pattern="*"), "Found."])
    async with opened(tmp_path, parts) as session:
        kept = Kept(session)
        await drain(session.run("lead"))
    call = kept.named("execute_tool Agent")
    (scout,) = [s for s in kept.spans if s.name.startswith("invoke_agent") and s.parent is not None]
    assert parent_of(scout) == call.context.span_id
    assert parent_of(kept.named("execute_tool Glob")) == scout.context.span_id
    assert len({span.context.trace_id for span in kept.spans}) == 1
    told = (scout.attributes or {})["gen_ai.agent.id"]
    assert told != "lead"


async def test_tokens_time_and_dollars_are_counted_by_agent(tmp_path: Path) -> None:
    card = ModelCard(id="m", provider="scripted", price=Price(input=1_000_000, output=2_000_000))
    said = {"lead": 0, "scout": 0}

    def mind(request: Any) -> Any:
        who = request.messages[0].text.split()[0].rstrip(",")
        said[who] += 1
        if who == "lead" and said[who] == 1:
            return agent("scout, look", "spawn")
        return spent("Done.", input_tokens=3, output_tokens=1)

    async with opened(tmp_path, ScriptedModel(mind, card=card)) as session:
        kept = Kept(session)
        await drain(session.run("lead"))
    by_agent: dict[str, dict[str, float]] = {}
    for point in kept.points("gen_ai.client.token.usage"):
        name = point.attributes["gen_ai.agent.name"]
        by_agent.setdefault(name, {})[point.attributes["gen_ai.token.type"]] = point.sum
    (scout,) = [name for name in by_agent if name != "lead"]
    assert by_agent[scout] == {"input": 3, "output": 1}
    dollars = {p.attributes["gen_ai.agent.name"]: p.value for p in kept.points("shoal.cost")}
    assert dollars[scout] == pytest.approx(5.0)
    assert sum(p.count for p in kept.points("gen_ai.client.operation.duration")) == 3


async def test_what_fails_is_an_error_with_its_kind_and_no_words_of_it(tmp_path: Path) -> None:
    def fails(_: Any) -> Any:
        raise BadRequest("the secret plan was refused", provider="p", model="m")

    reads = use("Read", "c1", file_path=str(tmp_path / "nowhere"))
    lines = iter([reads, use("Bash", "c2", command="touch x"), fails])

    def mind(request: Any) -> Any:
        line = next(lines)
        return line(request) if callable(line) else line

    async with opened(tmp_path, ScriptedModel(mind), skip_permissions=False) as session:
        kept = Kept(session)
        await drain(session.run("secret plan"))
    kinds = {span.name: (span.attributes or {}).get("error.type") for span in kept.spans}
    assert kinds["execute_tool Read"] == "tool_error"
    assert kinds["execute_tool Bash"] == "permission_denied"
    assert kinds["invoke_agent lead"] == "model_error"
    assert "secret plan" not in " ".join(span.to_json() for span in kept.spans)


async def test_what_is_said_is_told_only_where_a_person_wants_it_and_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "kestrel4heron6plover8")
    (tmp_path / "a.txt").write_text("the tide is kestrel4heron6plover8 high")
    for wanted in (False, True):
        model = ScriptedModel([use("Read", "c", file_path=str(tmp_path / "a.txt")), "High tide."])
        async with opened(tmp_path, model) as session:
            secrets = session.parts.settings.secrets if wanted else None
            kept = Kept(session, secrets=secrets)
            await drain(session.run("How is the tide?"))
        told = " ".join(span.to_json() for span in kept.spans)
        for words in ("How is the tide?", "High tide.", "the tide is"):
            assert (words in told) == wanted, words
        assert "kestrel4" not in told


async def test_what_an_end_cuts_off_is_ended_as_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, ScriptedModel([use("Gate")]), tools=[gate.tool]) as session:
        kept = Kept(session)
        turn = session.run("go")
        await asyncio.wait_for(gate.reached.wait(), 30)
        await session.interrupt()
        await drain(turn)
    call = kept.named("execute_tool Gate")
    assert (call.attributes or {})["error.type"] == "cancelled"
    assert kept.named("invoke_agent lead").end_time


async def test_a_trace_that_somebody_began_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Hi."])) as session:
        kept = Kept(session, trace=PARENT)
        await drain(session.run("go"))
    turn = kept.named("invoke_agent lead")
    assert f"{turn.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{parent_of(turn):016x}" == PARENT.split("-")[2]


async def test_a_session_sends_over_otlp_where_the_usual_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("TRACEPARENT", PARENT)
        async with opened(
            tmp_path, ScriptedModel([spent("Hi.", input_tokens=3, output_tokens=1)])
        ) as session:
            await drain(session.run("a prompt of mine"))
        (turn,) = collector.named("invoke_agent lead")
    assert (turn.trace, turn.parent) == (PARENT.split("-")[1], PARENT.split("-")[2])
    assert collector.services == {"shoal"}
    assert {p["gen_ai.agent.name"] for p in collector.metrics["gen_ai.client.token.usage"]} == {"lead"}
    assert "a prompt of mine" not in str(collector.spans)


async def test_a_teammate_in_a_process_of_its_own_goes_on_with_the_lead_s_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = {"type": "shutdown_request", "reason": "done"}
    lead: list[Any] = [
        use("TeamCreate", team_name="crew"),
        member("ann"),
        "At work.",
        lambda body: tell("ann", close) if "All is well" in fleet.everything(body) else "Waiting.",
        "Asked.",
        "Over.",
    ]
    ann = [tell("team-lead", "All is well.", "report"), "I am done.", fleet.approve]
    async with collecting() as collector, fleet.provider(monkeypatch, lead=lead, ann=ann):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with fleet.opened(tmp_path) as session:
            await all_turns(session, "Go.")
    (call,) = collector.named("execute_tool Agent")
    theirs = collector.named("invoke_agent ann")
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


async def test_a_collector_that_is_away_neither_ends_nor_holds_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with asyncio.timeout(15):
        async with opened(tmp_path, ScriptedModel(["Hi."])) as session:
            *_, finished = await drain(session.run("go"))
    assert finished.text == "Hi."
    assert capfd.readouterr().err == ""


async def test_off_nobody_looks_on_and_nothing_is_imported(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(["Hi."])) as session:
        assert not session._watchers
    code = (
        "import sys, asyncio, shoal\n"
        "from shoal.models.scripted import ScriptedModel\n"
        "async def go():\n"
        "    async with shoal.open(model=ScriptedModel(['Hi.'])) as session:\n"
        "        [event async for event in session.run('go')]\n"
        "asyncio.run(go())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = await asyncio.to_thread(_python, code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


async def test_a_missing_part_is_a_note_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    code = (
        "import sys, asyncio, shoal\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from shoal.models.scripted import ScriptedModel\n"
        "async def go():\n"
        "    async with shoal.open(model=ScriptedModel(['Hi.'])) as session:\n"
        "        [event async for event in session.run('go')]\n"
        "        print(session.notes)\n"
        "asyncio.run(go())\n"
    )
    done = await asyncio.to_thread(_python, code, tmp_path)
    assert "pip install 'shoal[otel]'" in done.stdout, done.stderr


def _python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
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
def test_variables_or_the_setting_turn_it_on(tmp_path: Path, env: Any, own: Any, wanted: bool) -> None:
    given = json.dumps({"shoal": {"telemetry": own}})
    settings = load_settings(
        cwd=tmp_path, environ={"SHOAL_HOME": str(tmp_path), **env}, given=given, managed=()
    )
    assert is_wanted(settings) == wanted


def test_no_project_turns_it_on_or_has_what_is_said_told(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(
        json.dumps({"shoal": {"telemetry": {"enabled": True, "content": True}}})
    )
    load: Callable[..., Any] = lambda **env: load_settings(  # noqa: E731
        cwd=tmp_path, environ={"SHOAL_HOME": str(tmp_path / "home"), **env}, managed=()
    )
    assert not is_wanted(load())
    assert not shows_content(load())
    assert shows_content(load(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true"))
