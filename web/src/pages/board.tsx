/** Task board of a run: columns that a person can sort, and the dependency graph. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { AgentName, Choices, Cost, Empty, Problem, Time, getTint, useAction, useStoredChoice } from "../components";
import { findAgentByName, useNow, useRun, useSource } from "../context";
import { formatAge } from "../format";
import { TaskGraph } from "../task_graph";
import { NewTaskDrawer, TaskDrawer } from "../task_drawer";
import { COLUMNS, computeRank, groupByStatus, listBoards, listOpenBlockers, type Status } from "../tasks";
import type { TaskRow } from "../types";
import { VirtualList } from "../virtual_list";

const CARD = 96;
const NEW = "new";

export function BoardPage() {
  const { session, runView, canSteer } = useRun();
  const source = useSource();
  const [layout, setLayout] = useStoredChoice<"columns" | "graph">("board", "columns");
  const [chosenBoard, setChosenBoard] = useState("");
  const [shown, setShown] = useState("");
  const [, problem, runAction] = useAction();
  const [announcement, setAnnouncement] = useState("");
  const all = runView.tasks.list;
  const boards = listBoards(runView);
  const board = boards.includes(chosenBoard) ? chosenBoard : (boards.at(-1) ?? "");
  const tasks = useMemo(() => all.filter((each) => each.board === board), [all, board]);
  const columns = useMemo(() => groupByStatus(tasks), [tasks]);
  const chosen = tasks.find((each) => each.id === shown);

  /** Moves a task to an index of the to-do column. */
  const moveTask = (task: TaskRow, index: number) => {
    const others = columns.pending.filter((each) => each.id !== task.id);
    const back = task.status === "pending" ? {} : { status: "pending" };
    void runAction(() => source.changeTask(session, board, task.id, { rank: computeRank(others, index), ...back }));
    setAnnouncement(`Task ${task.id} is now number ${index + 1} of ${others.length + 1} pending tasks.`);
  };
  const completeTask = (task: TaskRow) =>
    void runAction(() => source.changeTask(session, board, task.id, { status: "completed" }));
  const createMove = (task: TaskRow, by: number) => {
    const index = columns.pending.indexOf(task) + by;
    return canSteer && task.status === "pending" && index >= 0 && index < columns.pending.length ? () => moveTask(task, index) : undefined;
  };

  return (
    <div class="page page-board">
      <header class="page-head">
        <h2>Board</h2>
        {boards.length > 1 && (
          <select value={board} aria-label="Board" onChange={(event) => setChosenBoard(event.currentTarget.value)}>
            {boards.map((each) => <option key={each} value={each}>{each === session ? "this session" : each}</option>)}
          </select>
        )}
        <Choices label="Show as" value={layout} onChange={setLayout} options={[["columns", "Columns"], ["graph", "Graph"]]} />
        {canSteer && <button type="button" class="main" onClick={() => setShown(NEW)}>New task</button>}
      </header>
      <Problem text={problem} />
      <p class="visually-hidden" role="status">{announcement}</p>
      <div class="with-drawer">
        {!tasks.length && <Empty title="The board is empty">Tasks appear here when agents{canSteer ? " or you" : ""} add them.</Empty>}
        {tasks.length > 0 && layout === "graph" && <TaskGraph tasks={tasks} chosen={shown} onChoose={(task) => setShown(task.id)} />}
        {tasks.length > 0 && layout === "columns" && (
          <Columns columns={columns} chosen={shown} onChoose={setShown} onMove={moveTask} onComplete={completeTask} createMove={createMove} />
        )}
        {shown === NEW && canSteer && <NewTaskDrawer board={board} onClose={() => setShown("")} />}
        {chosen && (
          <TaskDrawer key={chosen.id} task={chosen} onShow={setShown} onClose={() => setShown("")}
            onMove={chosen.status === "pending" ? { earlier: createMove(chosen, -1), later: createMove(chosen, 1) } : undefined} />
        )}
      </div>
    </div>
  );
}

interface BoardActions {
  chosen: string;
  onChoose(id: string): void;
  onMove(task: TaskRow, index: number): void;
  onComplete(task: TaskRow): void;
  createMove(task: TaskRow, by: number): (() => void) | undefined;
}

/** Dragged task, and the task before which it would be dropped; empty means the end. */
interface Drag {
  task: TaskRow;
  over: Status | "";
  before: string;
}

function Columns({ columns, ...actions }: BoardActions & { columns: Record<Status, TaskRow[]> }) {
  const { canSteer } = useRun();
  const [drag, setDrag] = useState<Drag | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const focused = useRef("");
  // A card that moves is removed from the document for a moment and would lose focus.
  useLayoutEffect(() => {
    if (!focused.current || document.activeElement !== document.body) return;
    box.current?.querySelector<HTMLElement>(`[data-task="${focused.current}"]`)?.focus();
  }, [columns]);
  const dropOn = (status: Status) => {
    setDrag(null);
    if (!drag) return;
    if (status === "completed" && drag.task.status !== "completed") actions.onComplete(drag.task);
    if (status !== "pending") return;
    const others = columns.pending.filter((each) => each.id !== drag.task.id);
    const index = others.findIndex((each) => each.id === drag.before);
    actions.onMove(drag.task, index < 0 ? others.length : index);
  };
  return (
    <div ref={box} class="columns" onFocusCapture={(event) => {
      focused.current = (event.target as HTMLElement).dataset.task ?? "";
    }}>
      {COLUMNS.map(([status, label]) => {
        const tasks = columns[status];
        const acceptsDrop = canSteer && status !== "in_progress";
        return (
          <section key={status} class={`column ${drag && drag.over === status ? "column-over" : ""}`} aria-label={label} data-column={status}
            onDragOver={(event) => {
              if (!drag || !acceptsDrop) return;
              event.preventDefault();
              const before = status === "pending" ? findDropTarget(event, tasks) : "";
              if (drag.over !== status || drag.before !== before) setDrag({ ...drag, over: status, before });
            }}
            onDrop={(event) => {
              event.preventDefault();
              dropOn(status);
            }}>
            <h3>{label} <span class="figures soft">{tasks.length}</span></h3>
            <VirtualList count={tasks.length} height={CARD} keyOf={(index) => tasks[index]!.id} label={label} class="fill">
              {(index) => {
                const task = tasks[index]!;
                const isDropTarget = drag?.over === status && drag.before === task.id && drag.task.id !== task.id;
                return (
                  <Card task={task} actions={actions} isDropTarget={isDropTarget} isDragged={drag?.task.id === task.id}
                    onDragStart={() => setDrag({ task, over: "", before: "" })} onDragEnd={() => setDrag(null)} />
                );
              }}
            </VirtualList>
          </section>
        );
      })}
    </div>
  );
}

/** Finds the card before which to drop: the one under the pointer, or the next one in its lower half. */
function findDropTarget(event: DragEvent, tasks: readonly TaskRow[]): string {
  const card = (event.target as HTMLElement).closest<HTMLElement>("[data-task]");
  if (!card) return "";
  const edges = card.getBoundingClientRect();
  const index = tasks.findIndex((each) => each.id === card.dataset.task);
  return tasks[event.clientY > edges.top + edges.height / 2 ? index + 1 : index]?.id ?? "";
}

function Card({ task, actions, isDropTarget, isDragged, onDragStart, onDragEnd }: {
  task: TaskRow;
  actions: BoardActions;
  isDropTarget: boolean;
  isDragged: boolean;
  onDragStart(): void;
  onDragEnd(): void;
}) {
  const { runView, canSteer } = useRun();
  const now = useNow();
  const tint = getTint(findAgentByName(runView, task.owner)?.color ?? "");
  const waits = task.status === "pending" ? listOpenBlockers(runView, task) : [];
  const handleKey = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      actions.onChoose(task.id);
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      actions.createMove(task, event.key === "ArrowUp" ? -1 : 1)?.();
    }
  };
  return (
    <div class="task-slot">
      <div class={`task ${tint.class} ${isDropTarget ? "task-drop-target" : ""} ${isDragged ? "task-dragged" : ""} ${actions.chosen === task.id ? "task-chosen" : ""}`}
        style={tint.style} role="button" tabIndex={0} data-task={task.id} draggable={canSteer}
        aria-keyshortcuts={canSteer && task.status === "pending" ? "Alt+ArrowUp Alt+ArrowDown" : undefined}
        onClick={() => actions.onChoose(task.id)} onKeyDown={handleKey}
        onDragStart={(event) => {
          event.dataTransfer?.setData("text/plain", task.subject);
          onDragStart();
        }}
        onDragEnd={onDragEnd}>
        <p class="task-subject" title={task.subject}><span class="soft figures">#{task.id}</span> {task.subject}</p>
        <p class="task-waits">{waits.length > 0 && `waits for ${waits.slice(0, 4).map((each) => `#${each.id}`).join(", ")}${waits.length > 4 ? " …" : ""}`}</p>
        <footer>
          {task.owner ? <AgentName name={task.owner} link={false} /> : <span class="soft">nobody</span>}
          <span class="task-spent">{task.tokens > 0 && <Cost usd={task.usd} tokens={task.tokens} />}</span>
          <Time at={task.changed} text={formatAge(task.changed, now)} />
        </footer>
      </div>
    </div>
  );
}
