/** The board of a run: its tasks in columns that a person orders, and what waits for what. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choices, Cost, Empty, Problem, Time, Who, tint, useKept, useOrder } from "../bits";
import { agentCalled, useNow, useRun, useSource } from "../context";
import { ago } from "../format";
import { TaskGraph } from "../task_graph";
import { NewTask, TaskDrawer } from "../task_drawer";
import { COLUMNS, boardsOf, columnsOf, openBlockers, rankAt, type Status } from "../tasks";
import type { TaskRow } from "../types";
import { Windowed } from "../windowed";

const CARD = 96;
const NEW = "new";

export function BoardPage() {
  const { session, state, steers } = useRun();
  const source = useSource();
  const [look, setLook] = useKept<"columns" | "graph">("board", "columns");
  const [wanted, setWanted] = useState("");
  const [shown, setShown] = useState("");
  const [, problem, give] = useOrder();
  const [told, setTold] = useState("");
  const all = state.tasks.list;
  const boards = boardsOf(state);
  const board = boards.includes(wanted) ? wanted : (boards.at(-1) ?? "");
  const tasks = useMemo(() => all.filter((each) => each.board === board), [all, board]);
  const columns = useMemo(() => columnsOf(tasks), [tasks]);
  const chosen = tasks.find((each) => each.id === shown);

  /** Puts a task at a place of the column of what is to be done. */
  const put = (task: TaskRow, index: number) => {
    const others = columns.pending.filter((each) => each.id !== task.id);
    const back = task.status === "pending" ? {} : { status: "pending" };
    void give(() => source.changeTask(session, board, task.id, { rank: rankAt(others, index), ...back }));
    setTold(`Task ${task.id} is now number ${index + 1} of ${others.length + 1} to do.`);
  };
  const finish = (task: TaskRow) =>
    void give(() => source.changeTask(session, board, task.id, { status: "completed" }));
  const moveBy = (task: TaskRow, by: number) => {
    const index = columns.pending.indexOf(task) + by;
    return steers && task.status === "pending" && index >= 0 && index < columns.pending.length ? () => put(task, index) : undefined;
  };

  return (
    <div class="page page-board">
      <header class="page-head">
        <h2>Board</h2>
        {boards.length > 1 && (
          <select value={board} aria-label="Board" onChange={(event) => setWanted(event.currentTarget.value)}>
            {boards.map((each) => <option key={each} value={each}>{each === session ? "this session" : each}</option>)}
          </select>
        )}
        <Choices label="Show as" value={look} onChange={setLook} options={[["columns", "Columns"], ["graph", "Graph"]]} />
        {steers && <button type="button" class="main" onClick={() => setShown(NEW)}>New task</button>}
      </header>
      <Problem text={problem} />
      <p class="unseen" role="status">{told}</p>
      <div class="beside">
        {!tasks.length && <Empty title="The board is empty">Tasks appear here as agents write them down{steers ? ", or as you add them" : ""}.</Empty>}
        {tasks.length > 0 && look === "graph" && <TaskGraph tasks={tasks} chosen={shown} onChoose={(task) => setShown(task.id)} />}
        {tasks.length > 0 && look === "columns" && (
          <Columns columns={columns} chosen={shown} onChoose={setShown} onPut={put} onFinish={finish} moveBy={moveBy} />
        )}
        {shown === NEW && steers && <NewTask board={board} onClose={() => setShown("")} />}
        {chosen && (
          <TaskDrawer key={chosen.id} task={chosen} onShow={setShown} onClose={() => setShown("")}
            onMove={chosen.status === "pending" ? { earlier: moveBy(chosen, -1), later: moveBy(chosen, 1) } : undefined} />
        )}
      </div>
    </div>
  );
}

interface Orders {
  chosen: string;
  onChoose(id: string): void;
  onPut(task: TaskRow, index: number): void;
  onFinish(task: TaskRow): void;
  moveBy(task: TaskRow, by: number): (() => void) | undefined;
}

/** What is dragged, and the task before which it would come to stand; none is the end. */
interface Drag {
  task: TaskRow;
  over: Status | "";
  before: string;
}

function Columns({ columns, ...orders }: Orders & { columns: Record<Status, TaskRow[]> }) {
  const { steers } = useRun();
  const [drag, setDrag] = useState<Drag | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const focused = useRef("");
  // A card that changes its place is taken out of the document for a moment, and would lose the focus.
  useLayoutEffect(() => {
    if (!focused.current || document.activeElement !== document.body) return;
    box.current?.querySelector<HTMLElement>(`[data-task="${focused.current}"]`)?.focus();
  }, [columns]);
  const drop = (status: Status) => {
    setDrag(null);
    if (!drag) return;
    if (status === "completed" && drag.task.status !== "completed") orders.onFinish(drag.task);
    if (status !== "pending") return;
    const others = columns.pending.filter((each) => each.id !== drag.task.id);
    const index = others.findIndex((each) => each.id === drag.before);
    orders.onPut(drag.task, index < 0 ? others.length : index);
  };
  return (
    <div ref={box} class="columns" onFocusCapture={(event) => {
      focused.current = (event.target as HTMLElement).dataset.task ?? "";
    }}>
      {COLUMNS.map(([status, words]) => {
        const tasks = columns[status];
        const takes = steers && status !== "in_progress";
        return (
          <section key={status} class={`column ${drag && drag.over === status ? "column-over" : ""}`} aria-label={words} data-column={status}
            onDragOver={(event) => {
              if (!drag || !takes) return;
              event.preventDefault();
              const before = status === "pending" ? cardBehind(event, tasks) : "";
              if (drag.over !== status || drag.before !== before) setDrag({ ...drag, over: status, before });
            }}
            onDrop={(event) => {
              event.preventDefault();
              drop(status);
            }}>
            <h3>{words} <span class="figures soft">{tasks.length}</span></h3>
            <Windowed count={tasks.length} height={CARD} keyOf={(index) => tasks[index]!.id} label={words} class="fill">
              {(index) => {
                const task = tasks[index]!;
                const marked = drag?.over === status && drag.before === task.id && drag.task.id !== task.id;
                return (
                  <Card task={task} orders={orders} marked={marked} lifted={drag?.task.id === task.id}
                    onLift={() => setDrag({ task, over: "", before: "" })} onLetGo={() => setDrag(null)} />
                );
              }}
            </Windowed>
          </section>
        );
      })}
    </div>
  );
}

/** The card whose upper half is under the pointer, or the one behind the card whose lower half is. */
function cardBehind(event: DragEvent, tasks: readonly TaskRow[]): string {
  const card = (event.target as HTMLElement).closest<HTMLElement>("[data-task]");
  if (!card) return "";
  const edges = card.getBoundingClientRect();
  const index = tasks.findIndex((each) => each.id === card.dataset.task);
  return tasks[event.clientY > edges.top + edges.height / 2 ? index + 1 : index]?.id ?? "";
}

function Card({ task, orders, marked, lifted, onLift, onLetGo }: {
  task: TaskRow;
  orders: Orders;
  marked: boolean;
  lifted: boolean;
  onLift(): void;
  onLetGo(): void;
}) {
  const { state, steers } = useRun();
  const now = useNow();
  const look = tint(agentCalled(state, task.owner)?.color ?? "");
  const waits = task.status === "pending" ? openBlockers(state, task) : [];
  const pressed = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      orders.onChoose(task.id);
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      orders.moveBy(task, event.key === "ArrowUp" ? -1 : 1)?.();
    }
  };
  return (
    <div class="task-slot">
      <div class={`task ${look.class} ${marked ? "task-marked" : ""} ${lifted ? "task-lifted" : ""} ${orders.chosen === task.id ? "task-chosen" : ""}`}
        style={look.style} role="button" tabIndex={0} data-task={task.id} draggable={steers}
        aria-keyshortcuts={steers && task.status === "pending" ? "Alt+ArrowUp Alt+ArrowDown" : undefined}
        onClick={() => orders.onChoose(task.id)} onKeyDown={pressed}
        onDragStart={(event) => {
          event.dataTransfer?.setData("text/plain", task.subject);
          onLift();
        }}
        onDragEnd={onLetGo}>
        <p class="task-subject" title={task.subject}><span class="soft figures">#{task.id}</span> {task.subject}</p>
        <p class="task-waits">{waits.length > 0 && `waits for ${waits.slice(0, 4).map((each) => `#${each.id}`).join(", ")}${waits.length > 4 ? " …" : ""}`}</p>
        <footer>
          {task.owner ? <Who name={task.owner} link={false} /> : <span class="soft">nobody</span>}
          <span class="task-spent">{task.tokens > 0 && <Cost usd={task.usd} tokens={task.tokens} />}</span>
          <Time at={task.changed} text={ago(task.changed, now)} />
        </footer>
      </div>
    </div>
  );
}
