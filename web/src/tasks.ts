/** The tasks of a board as its page needs them: in columns, in order, with what they still wait for. */

import { taskKey, type RunState } from "./store";
import type { TaskRow } from "./types";

export type Status = "pending" | "in_progress" | "completed";

export const COLUMNS: readonly (readonly [Status, string])[] = [
  ["pending", "To do"], ["in_progress", "In progress"], ["completed", "Done"],
];

export const statusWords = (status: string): string => COLUMNS.find(([each]) => each === status)?.[1] ?? status;

/** The boards of a run: those of its teams, else the session's own. */
export function boardsOf(state: RunState): string[] {
  const found = new Set([...state.tasks.list.map((each) => each.board), ...state.run.teams]);
  return found.size ? [...found] : [state.run.session];
}

export function columnsOf(tasks: readonly TaskRow[]): Record<Status, TaskRow[]> {
  const found: Record<Status, TaskRow[]> = { pending: [], in_progress: [], completed: [] };
  for (const each of tasks) found[each.status as Status]?.push(each);
  found.pending.sort(byPlace);
  found.in_progress.sort(byPlace);
  found.completed.sort((one, other) => other.changed - one.changed);
  return found;
}

/** Of two that could be claimed, the one with the lower place is. */
const placeOf = (task: TaskRow): number => task.rank ?? Number(task.id);
const byPlace = (one: TaskRow, other: TaskRow) => placeOf(one) - placeOf(other) || Number(one.id) - Number(other.id);

/** The rank with which a task stands at a place among the others. */
export function rankAt(others: readonly TaskRow[], index: number): number {
  const before = others[index - 1];
  const next = others[index];
  if (before && next) return (placeOf(before) + placeOf(next)) / 2;
  if (next) return placeOf(next) - 1;
  return before ? placeOf(before) + 1 : 1;
}

export function openBlockers(state: RunState, task: TaskRow): TaskRow[] {
  return task.blocked_by
    .map((each) => state.tasks.get(taskKey(task.board, each)))
    .filter((each): each is TaskRow => !!each && each.status !== "completed");
}

/** Who a task of a board can be given to: the name to write, and the name to show. */
export function ownersOn(state: RunState, board: string): [string, string][] {
  const there = state.agents.list.filter((each) => each.team === board && ["working", "waiting", "idle"].includes(each.state));
  return [["team-lead", "lead"], ...there.map((each): [string, string] => [each.name, each.name])];
}
