/** Tasks of a board, grouped and sorted for its page. */

import { makeTaskKey, type RunView } from "./store";
import type { TaskRow } from "./types";

export type Status = "pending" | "in_progress" | "completed";

export const COLUMNS: readonly (readonly [Status, string])[] = [
  ["pending", "To do"], ["in_progress", "In progress"], ["completed", "Done"],
];

export const formatTaskStatus = (status: string): string => COLUMNS.find(([each]) => each === status)?.[1] ?? status;

/** Lists the boards of a run: those of its teams, or else the board of the session. */
export function listBoards(runView: RunView): string[] {
  const boards = new Set([...runView.tasks.list.map((each) => each.board), ...runView.run.teams]);
  return boards.size ? [...boards] : [runView.run.session];
}

export function groupByStatus(tasks: readonly TaskRow[]): Record<Status, TaskRow[]> {
  const columns: Record<Status, TaskRow[]> = { pending: [], in_progress: [], completed: [] };
  for (const each of tasks) columns[each.status as Status]?.push(each);
  columns.pending.sort(compareRank);
  columns.in_progress.sort(compareRank);
  columns.completed.sort((one, other) => other.changed - one.changed);
  return columns;
}

/** The task with the lower rank is claimed first. */
const getRank = (task: TaskRow): number => task.rank ?? Number(task.id);
const compareRank = (one: TaskRow, other: TaskRow) => getRank(one) - getRank(other) || Number(one.id) - Number(other.id);

/** Computes the rank that puts a task at this index among the others. */
export function computeRank(others: readonly TaskRow[], index: number): number {
  const before = others[index - 1];
  const next = others[index];
  if (before && next) return (getRank(before) + getRank(next)) / 2;
  if (next) return getRank(next) - 1;
  return before ? getRank(before) + 1 : 1;
}

export function listOpenBlockers(runView: RunView, task: TaskRow): TaskRow[] {
  return task.blocked_by
    .map((each) => runView.tasks.get(makeTaskKey(task.board, each)))
    .filter((each): each is TaskRow => !!each && each.status !== "completed");
}

/** Lists possible owners of a task: the name to store and the name to show. */
export function listOwners(runView: RunView, board: string): [string, string][] {
  const there = runView.agents.list.filter((each) => each.team === board && ["working", "waiting", "idle"].includes(each.state));
  return [["team-lead", "lead"], ...there.map((each): [string, string] => [each.name, each.name])];
}
