/** What waits for what, drawn from left to right. */

import { useMemo } from "preact/hooks";
import { tint } from "./bits";
import { agentCalled, useRun } from "./context";
import { curve, laidOut, type Measures } from "./layers";
import { statusWords } from "./tasks";
import type { TaskRow } from "./types";

const MEASURES: Measures = { width: 220, height: 52, apart: 64, below: 14 };
const MARGIN = 16;
const MOST = 400;

export function TaskGraph({ tasks, chosen, onChoose }: {
  tasks: readonly TaskRow[];
  chosen: string;
  onChoose(task: TaskRow): void;
}) {
  const { state } = useRun();
  const linked = useMemo(() => withLinks(tasks), [tasks]);
  // Where the boxes stand follows from the links alone; what they say may change with every frame.
  const shape = linked.map((each) => `${each.id}<${each.blocked_by.join()}`).join(" ");
  const layout = useMemo(
    () => laidOut(linked.map((each) => ({ key: each.id, after: each.blocked_by })), MEASURES),
    [shape],
  );
  const byId = new Map(linked.map((each) => [each.id, each]));
  const done = (id: string) => byId.get(id)?.status === "completed";
  const apart = tasks.length - linked.length;
  return (
    <div class="graph scroll" tabIndex={0} role="group" aria-label="What waits for what">
      <svg width={layout.width + 2 * MARGIN} height={layout.height + 2 * MARGIN}>
        <defs>
          <marker id="points-to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0 8 4 0 8z" />
          </marker>
        </defs>
        <g transform={`translate(${MARGIN} ${MARGIN})`}>
          {layout.lines.map((line) => (
            <path key={`${line.from} ${line.to}`} class={`link ${done(line.from) ? "link-done" : ""} ${chosen && [line.from, line.to].includes(chosen) ? "link-chosen" : ""}`}
              data-from={line.from} data-to={line.to} d={curve(line.points)} marker-end="url(#points-to)" />
          ))}
          {linked.map((task) => {
            const [x, y] = layout.corners.get(task.id)!;
            const look = tint(agentCalled(state, task.owner)?.color ?? "");
            return (
              <g key={task.id} class={`node node-${task.status} ${look.class} ${task.id === chosen ? "node-chosen" : ""}`}
                style={look.style} transform={`translate(${x} ${y})`} role="button" tabIndex={0} data-task={task.id}
                aria-label={`Task ${task.id}, ${statusWords(task.status)}: ${task.subject}`}
                onClick={() => onChoose(task)}
                onKeyDown={(event) => {
                  if (event.key !== "Enter" && event.key !== " ") return;
                  event.preventDefault();
                  onChoose(task);
                }}>
                <title>{`#${task.id} ${task.subject}`}</title>
                <rect width={MEASURES.width} height={MEASURES.height} rx="6" />
                <rect class="node-owner" width="4" height={MEASURES.height - 12} x="4" y="6" rx="2" />
                <foreignObject x="14" width={MEASURES.width - 20} height={MEASURES.height}>
                  <div class="node-words">
                    <p><span class="soft">#{task.id}</span> {task.subject}</p>
                    <p class="node-facts">{statusWords(task.status)}{task.owner && ` · ${task.owner}`}</p>
                  </div>
                </foreignObject>
              </g>
            );
          })}
        </g>
      </svg>
      {apart > 0 && (
        <p class="soft graph-note">
          {linked.length ? "Not drawn: " : ""}{apart} {apart === 1 ? "task waits for none and none waits for it" : "tasks wait for none and none waits for them"}.
        </p>
      )}
    </div>
  );
}

/** Those that wait for another or are waited for; of very many, those that are still open and what they wait for. */
function withLinks(tasks: readonly TaskRow[]): TaskRow[] {
  const known = new Set(tasks.map((each) => each.id));
  const waited = new Set(tasks.flatMap((each) => each.blocked_by).filter((each) => known.has(each)));
  const linked = tasks.filter((each) => waited.has(each.id) || each.blocked_by.some((other) => known.has(other)));
  if (linked.length <= MOST) return linked;
  return linked.filter((each) => each.status !== "completed").slice(0, MOST);
}
