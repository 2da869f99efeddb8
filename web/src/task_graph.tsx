/** Graph of the task dependencies, drawn from left to right. */

import { useMemo } from "preact/hooks";
import { getTint } from "./components";
import { findAgentByName, useRun } from "./context";
import { buildCurve, layOutGraph, type LayoutSizes } from "./graph_layout";
import { formatTaskStatus } from "./tasks";
import type { TaskRow } from "./types";

const SIZES: LayoutSizes = { width: 220, height: 52, columnGap: 64, rowGap: 14 };
const MARGIN = 16;
const MAX_NODES = 400;

export function TaskGraph({ tasks, chosen, onChoose }: {
  tasks: readonly TaskRow[];
  chosen: string;
  onChoose(task: TaskRow): void;
}) {
  const { runView } = useRun();
  const linked = useMemo(() => selectLinkedTasks(tasks), [tasks]);
  // The layout depends only on the links; labels may change with every delta.
  const shape = linked.map((each) => `${each.id}<${each.blocked_by.join()}`).join(" ");
  const layout = useMemo(
    () => layOutGraph(linked.map((each) => ({ key: each.id, after: each.blocked_by })), SIZES),
    [shape],
  );
  const byId = new Map(linked.map((each) => [each.id, each]));
  const isDone = (id: string) => byId.get(id)?.status === "completed";
  const unlinkedCount = tasks.length - linked.length;
  return (
    <div class="graph scroll" tabIndex={0} role="group" aria-label="Task dependencies">
      <svg width={layout.width + 2 * MARGIN} height={layout.height + 2 * MARGIN}>
        <defs>
          <marker id="points-to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0 8 4 0 8z" />
          </marker>
        </defs>
        <g transform={`translate(${MARGIN} ${MARGIN})`}>
          {layout.lines.map((line) => (
            <path key={`${line.from} ${line.to}`} class={`link ${isDone(line.from) ? "link-done" : ""} ${chosen && [line.from, line.to].includes(chosen) ? "link-chosen" : ""}`}
              data-from={line.from} data-to={line.to} d={buildCurve(line.points)} marker-end="url(#points-to)" />
          ))}
          {linked.map((task) => {
            const [x, y] = layout.corners.get(task.id)!;
            const tint = getTint(findAgentByName(runView, task.owner)?.color ?? "");
            return (
              <g key={task.id} class={`node node-${task.status} ${tint.class} ${task.id === chosen ? "node-chosen" : ""}`}
                style={tint.style} transform={`translate(${x} ${y})`} role="button" tabIndex={0} data-task={task.id}
                aria-label={`Task ${task.id}, ${formatTaskStatus(task.status)}: ${task.subject}`}
                onClick={() => onChoose(task)}
                onKeyDown={(event) => {
                  if (event.key !== "Enter" && event.key !== " ") return;
                  event.preventDefault();
                  onChoose(task);
                }}>
                <title>{`#${task.id} ${task.subject}`}</title>
                <rect width={SIZES.width} height={SIZES.height} rx="6" />
                <rect class="node-owner" width="4" height={SIZES.height - 12} x="4" y="6" rx="2" />
                <foreignObject x="14" width={SIZES.width - 20} height={SIZES.height}>
                  <div class="node-text">
                    <p><span class="soft">#{task.id}</span> {task.subject}</p>
                    <p class="node-facts">{formatTaskStatus(task.status)}{task.owner && ` · ${task.owner}`}</p>
                  </div>
                </foreignObject>
              </g>
            );
          })}
        </g>
      </svg>
      {unlinkedCount > 0 && (
        <p class="soft graph-note">
          {linked.length ? "Not drawn: " : ""}{unlinkedCount} {unlinkedCount === 1 ? "task without dependencies" : "tasks without dependencies"}.
        </p>
      )}
    </div>
  );
}

/** Selects tasks that block or are blocked; if there are too many, only open ones. */
function selectLinkedTasks(tasks: readonly TaskRow[]): TaskRow[] {
  const known = new Set(tasks.map((each) => each.id));
  const blockerIds = new Set(tasks.flatMap((each) => each.blocked_by).filter((each) => known.has(each)));
  const linked = tasks.filter((each) => blockerIds.has(each.id) || each.blocked_by.some((other) => known.has(other)));
  if (linked.length <= MAX_NODES) return linked;
  return linked.filter((each) => each.status !== "completed").slice(0, MAX_NODES);
}
