"""Panel of the agents of a run, with keys to view, interrupt, move, stop and kill one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from shoal.app.run_view.view_rows import RunViewAgentRow, RunViewQuestionRow, ViewDelta
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import format_count_with_noun, format_dollars
from shoal.surfaces.tui.panels.agent_lines import (
    ENDED,
    build_agent_column_titles,
    build_agent_detail_lines,
    build_agent_line,
    format_time_since_last_heard,
)
from shoal.surfaces.tui.panels.cells import ASKS, GOOD, MUTED, Part, build_clean_line
from shoal.surfaces.tui.panels.dialogs import ConfirmScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.panel import notify_user
from shoal.surfaces.tui.panels.row_list import RowEntry, RowList
from shoal.wire.control_codec import (
    InterruptTurnControlCommand,
    MoveAgentsToBackgroundControlCommand,
    RunControlCommand,
    ShutDownMemberControlCommand,
    StopAgentOrShellControlCommand,
)

_FOLD = "ended agents"
"""Key of the line above the ended agents."""


class _PhaseKey(NamedTuple):
    """Key of the line above the agents of a phase."""

    workflow: str
    phase: str


class AgentsPanel(ListPanel):
    HAS_TITLES = HAS_DETAIL = True
    TICK = 1.0
    DEFAULT_CSS = """
    AgentsPanel > .panel--detail { height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "interrupt", "Interrupt its turn", show=False),
        Binding("b", "background", "Move to background", show=False),
        Binding("x", "stop", "Stop", show=False),
        Binding("k", "kill", "Kill", show=False),
        Binding("a", "answer", "Answer its question", show=False),
        Binding("e", "fold", "Show or hide ended agents", show=False),
    ]
    HINTS = "⏎ view · esc interrupt · b background · x stop · k kill · a answer · e ended · q close"

    class AgentChosen(Message):
        """Posted when the user chooses an agent to view and talk to."""

        def __init__(self, agent: RunViewAgentRow) -> None:
            super().__init__()
            self.agent = agent

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._agents: dict[str, RunViewAgentRow] = {}
        self._depths: dict[str, int] = {}
        self._ages: dict[str, str] = {}
        """Ages as last drawn."""
        self._unfolded = False

    @property
    def current_agent(self) -> RunViewAgentRow | None:
        """Agent at the cursor."""
        return self._agents.get(str(self.rows.cursor))

    # Drawing

    def apply_delta(self, delta: ViewDelta, *, is_first: bool) -> None:
        if not delta.agents and not delta.workflows and not is_first:
            return
        for workflow in delta.workflows:
            is_first = True
            for phase in ("", *(each.name for each in workflow.phases)):
                self.rows.invalidate_row(_PhaseKey(workflow.id, phase))
        for row in delta.agents:
            old_row = self._agents.get(row.id)
            is_first = is_first or old_row is None or (old_row.state in ENDED) != (row.state in ENDED)
            self._agents[row.id] = row
            self.rows.invalidate_row(row.id)
        if is_first:
            self._arrange_rows()
        self._update_head()
        self.show_detail()

    def _arrange_rows(self) -> None:
        live_entries: list[RowEntry] = []
        ended_entries: list[RowEntry] = []
        agents_of_phase: dict[_PhaseKey, list[RowEntry]] = self._list_running_phases()
        for status in self.run_view.statuses.iter_agents_in_tree_order():
            row = self._agents.get(status.agent)
            if row is not None:
                self._update_row_depth(row)
                live = live_entries
                if row.workflow:
                    live = agents_of_phase.setdefault(_PhaseKey(row.workflow, row.phase), [])
                (ended_entries if row.state in ENDED else live).append(RowEntry(row.id))
        for key, entries in agents_of_phase.items():
            if entries or self._is_running_phase(key):
                live_entries += [RowEntry(key, selectable=False), *entries]
        if ended_entries:
            self.rows.invalidate_row(_FOLD)
            live_entries.append(RowEntry(_FOLD))
        self.rows.set_entries([*live_entries, *(ended_entries if self._unfolded else ())])

    def _list_running_phases(self) -> dict[_PhaseKey, list[RowEntry]]:
        """Return the phases of running workflows in their order, without agents."""
        workflows = self.run_view.workflows.rows.values()
        return {
            _PhaseKey(each.id, phase.name): []
            for each in workflows
            if each.status == "running"
            for phase in each.phases
        }

    def _is_running_phase(self, key: _PhaseKey) -> bool:
        row = self.run_view.workflows.rows.get_row(key.workflow)
        return row.status == "running" and row.phase == key.phase

    def _build_phase_line(self, key: _PhaseKey) -> Content:
        row = self.run_view.workflows.rows.get_row(key.workflow)
        phase = next((each for each in row.phases if each.name == key.phase), None)
        progress = (
            "" if phase is None or not phase.agents else f"  {phase.finished}/{phase.agents} agents done"
        )
        name = f" · {key.phase}" if key.phase else ""
        return build_clean_line((f"◇ workflow {row.name}{name}", "bold"), (progress, MUTED))

    def _update_row_depth(self, row: RunViewAgentRow) -> None:
        """Set the row's depth: the number of its ancestors that are shown above it."""
        depth, parent = 0, self._agents.get(row.parent)
        seen_ids = {row.id}
        while parent is not None and parent.id not in seen_ids:
            seen_ids.add(parent.id)
            depth += parent.state not in ENDED or row.state in ENDED
            parent = self._agents.get(parent.parent)
        if self._depths.get(row.id) != depth:
            self._depths[row.id] = depth
            self.rows.invalidate_row(row.id)

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _FOLD:
            return [self._build_ended_agents_line()]
        if isinstance(key, _PhaseKey):
            return [self._build_phase_line(key)]
        row, now = self._agents[str(key)], self.clock.now()
        self._ages[row.id] = format_time_since_last_heard(row, now)
        depth = self._depths.get(row.id, 0)
        return [
            build_agent_line(row, depth=depth, now=now, width=width, question=self._find_agent_question(row))
        ]

    def _build_ended_agents_line(self) -> Content:
        ended_count = sum(row.state in ENDED for row in self._agents.values())
        failed_count = sum(row.state in ("failed", "gone", "down") for row in self._agents.values())
        summary = f"{ended_count} ended" + (f", {failed_count} of them failed" if failed_count else "")
        return build_clean_line((f"{'▾' if self._unfolded else '▸'} {summary}", MUTED))

    def _find_agent_question(self, row: RunViewAgentRow) -> RunViewQuestionRow | None:
        return self.run_view.questions.get(row.question) if row.question else None

    def _update_head(self) -> None:
        states = [row.state for row in self._agents.values()]
        parts: list[Part] = [("Agents", "bold")]
        for state, style in (("working", GOOD), ("waiting", ASKS), ("idle", MUTED)):
            if number := states.count(state):
                parts.append((f"  {number} {state}", style))
        costs = self.run_view.costs
        unpriced_note = (
            ""
            if not costs.unpriced
            else f" and {format_count_with_noun(costs.unpriced, 'request')} without a price"
        )
        parts.append((f"  {format_dollars(costs.usd)}{unpriced_note}", MUTED))
        self.set_panel_head(build_clean_line(*parts))

    def show_detail(self) -> None:
        row, detail = self.current_agent, self.query_one(".panel--detail", Static)
        if row is None:
            detail.update("", layout=False)
            return
        lines = build_agent_detail_lines(row, self._find_agent_question(row), self.clock.now())
        detail.update(Content("\n").join(lines), layout=False)

    def refresh_ages(self) -> None:
        """Redraw the visible rows whose displayed age changed."""
        now = self.clock.now()
        for key in self.rows.list_visible_keys() if self._shown else ():
            row = self._agents.get(str(key))
            if row is not None and self._ages.get(row.id) not in (
                None,
                format_time_since_last_heard(row, now),
            ):
                self.rows.invalidate_row(row.id)
                if key == self.rows.cursor:
                    self.show_detail()

    def on_resize(self) -> None:
        width = self.rows.scrollable_content_region.width or self.size.width - 2
        self.query_one(".panel--titles", Static).update(build_agent_column_titles(width), layout=False)

    # Keys

    def on_row_list_row_chosen(self, message: RowList.RowChosen) -> None:
        message.stop()
        if message.key == _FOLD:
            self.action_fold()
        elif (row := self._agents.get(str(message.key))) is not None:
            self.post_message(self.AgentChosen(row))

    def action_fold(self) -> None:
        self._unfolded = not self._unfolded
        self._arrange_rows()

    def action_interrupt(self) -> None:
        for row in self._yield_current_row_if_actionable():
            command = (
                InterruptTurnControlCommand()
                if row.id == LEAD_ID
                else InterruptTurnControlCommand(task_id=_get_command_target(row))
            )
            self.send_run_command(command, partial(_describe_interrupt_result, row))

    def action_background(self) -> None:
        for row in self._yield_current_row_if_actionable():
            if row.id == LEAD_ID:
                notify_user(
                    self, "The lead is always in the foreground. Choose one of its agents.", "warning"
                )
                return
            self.send_run_command(
                MoveAgentsToBackgroundControlCommand(task_id=row.id),
                partial(_describe_background_move_result, row),
            )

    def action_stop(self) -> None:
        for row in self._yield_current_row_if_actionable(exclude_lead=True):
            explanation = (
                "Shoal asks it to finish, and stops it after the grace period."
                if row.team
                else "Its parent gets its work so far."
            )
            self._confirm_and_run_action(
                f"Stop {row.name}?", f"{row.task}\n\n{explanation}", "stop it", partial(self._stop_agent, row)
            )

    def _confirm_and_run_action(
        self, title: str, text: str, confirm_label: str, action: Callable[[], None]
    ) -> None:
        self.app.push_screen(
            ConfirmScreen(title, text, yes=confirm_label), lambda sure: action() if sure else None
        )

    def _stop_agent(self, row: RunViewAgentRow) -> None:
        command: RunControlCommand = (
            ShutDownMemberControlCommand(name=row.name)
            if row.team
            else StopAgentOrShellControlCommand(task_id=row.id)
        )
        if row.team:
            notify_user(self, f"Asked {row.name} to shut down.")
        self.send_run_command(command, lambda _: f"{row.name} has ended.")

    def action_kill(self) -> None:
        for row in self._yield_current_row_if_actionable(exclude_lead=True):
            explanation = "Shoal stops it immediately, even during a tool call. Its work so far is kept."
            self._confirm_and_run_action(
                f"Kill {row.name}?", f"{row.task}\n\n{explanation}", "kill it", partial(self._kill_agent, row)
            )

    def _kill_agent(self, row: RunViewAgentRow) -> None:
        self.send_run_command(
            StopAgentOrShellControlCommand(task_id=_get_command_target(row)),
            lambda _: f"Killed {row.name}.",
        )

    def action_answer(self) -> None:
        from shoal.surfaces.tui.answer_screen import open_answer_screen

        for row in self._yield_current_row_if_actionable():
            question = self._find_agent_question(row)
            if question is None:
                notify_user(self, f"{row.name} has no open question.")
            else:
                open_answer_screen(self, question)

    def _yield_current_row_if_actionable(self, *, exclude_lead: bool = False) -> Iterator[RunViewAgentRow]:
        row = self.current_agent
        if row is None:
            return
        if exclude_lead and row.id == LEAD_ID:
            notify_user(self, "The lead stops only with its run. Esc interrupts its turn.", "warning")
        elif row.state in ENDED:
            notify_user(
                self,
                f"{row.name} has ended. Press Enter to see its work; a message there resumes it.",
                "warning",
            )
        else:
            yield row


def _get_command_target(row: RunViewAgentRow) -> str:
    """Return the id for commands: teammates are addressed by name, other agents by id."""
    return row.name if row.team else row.id


def _describe_interrupt_result(row: RunViewAgentRow, answer: Any) -> str:
    was_interrupted = isinstance(answer, dict) and answer.get("interrupted")
    return f"Interrupted {row.name}'s turn." if was_interrupted else f"{row.name} has no turn to interrupt."


def _describe_background_move_result(row: RunViewAgentRow, answer: Any) -> str:
    if isinstance(answer, dict) and answer.get("moved"):
        return f"{row.name} continues in the background."
    return f"{row.name} is already in the background."
