/** Drawer with one task, to read and to edit, and the form for a new task. */

import { useEffect, useState } from "preact/hooks";
import { AgentName, ConfirmButton, Cost, Problem, Time, useAction } from "./components";
import { useNow, useRun, useSource } from "./context";
import { formatAge, formatClock } from "./format";
import { Markdown } from "./markdown";
import { Drawer } from "./drawer";
import { formatTaskStatus, listOpenBlockers, listOwners } from "./tasks";
import type { TaskDetails, TaskRow } from "./types";

export function TaskDrawer({ task, onShow, onClose, onMove }: {
  task: TaskRow;
  onShow(id: string): void;
  onClose(): void;
  /** Moves the task up or down in its column; a direction that is not possible is missing. */
  onMove?: { earlier?(): void; later?(): void };
}) {
  const { session, runView, canSteer } = useRun();
  const source = useSource();
  const now = useNow();
  const details = useTaskDetails(task);
  /** Texts at the time the user started to edit. */
  const [before, setEditing] = useState<{ subject: string; description: string } | null>(null);
  const [busy, problem, runAction] = useAction();
  const change = (changes: Record<string, unknown>) => runAction(() => source.changeTask(session, task.board, task.id, changes));
  const waits = listOpenBlockers(runView, task);
  const blocks = runView.tasks.list.filter((each) => each.board === task.board && each.blocked_by.includes(task.id));
  if (before) {
    return (
      <Drawer title={`Task ${task.id}`} onClose={onClose}>
        <TaskForm busy={busy} problem={problem} label="Save" subject={before.subject} description={before.description}
          onCancel={() => setEditing(null)}
          onDone={async (subject, description) => {
            // Send only changed fields: agents may have changed the others meanwhile.
            const changes = {
              ...(subject !== before.subject && { subject }),
              ...(description !== before.description && { description }),
            };
            if (!Object.keys(changes).length || (await change(changes))) setEditing(null);
          }} />
      </Drawer>
    );
  }
  return (
    <Drawer title={`Task ${task.id}`} onClose={onClose}>
      <h3 class="task-title">{task.subject}</h3>
      {details?.description && <Markdown text={details.description} />}
      <dl class="facts">
        <dt>Status</dt>
        <dd>{formatTaskStatus(task.status)}, <Time at={task.changed} text={`${formatAge(task.changed, now)} ago`} /></dd>
        <dt>Owner</dt>
        <dd>{canSteer ? <OwnerSelect task={task} busy={busy} onAssign={(owner) => void change({ owner })} /> : task.owner ? <AgentName name={task.owner} /> : "nobody"}</dd>
        {task.blocked_by.length > 0 && <dt>Waits for</dt>}
        {task.blocked_by.length > 0 && <dd><TaskLinks ids={task.blocked_by} open={waits} onShow={onShow} /></dd>}
        {blocks.length > 0 && <dt>Blocks</dt>}
        {blocks.length > 0 && <dd><TaskLinks ids={blocks.map((each) => each.id)} open={blocks} onShow={onShow} /></dd>}
        <dt>Cost</dt>
        <dd><Cost usd={task.usd} tokens={task.tokens} /></dd>
      </dl>
      <Problem text={problem} />
      {canSteer && (
        <div class="drawer-actions">
          <button type="button" disabled={!details} onClick={() => details && setEditing({ subject: task.subject, description: details.description })}>Edit</button>
          {onMove && <button type="button" disabled={busy || !onMove.earlier} onClick={onMove.earlier}>Earlier</button>}
          {onMove && <button type="button" disabled={busy || !onMove.later} onClick={onMove.later}>Later</button>}
          {task.status !== "completed" && <button type="button" disabled={busy} onClick={() => void change({ status: "completed" })}>Mark done</button>}
          {task.status !== "pending" && <button type="button" disabled={busy} onClick={() => void change({ status: "pending" })}>Move back to pending</button>}
          <ConfirmButton label="Delete" question="Delete it?" class="bad" disabled={busy} onConfirm={() => {
            void change({ status: "deleted" });
            onClose();
          }} />
        </div>
      )}
      <h4>History</h4>
      <ol class="moves">
        {task.moves.map(([at, status, owner], index) => (
          <li key={index}><Time at={at} text={formatClock(at)} /> {formatTaskStatus(status)}{owner && <> · <AgentName name={owner} /></>}</li>
        ))}
      </ol>
    </Drawer>
  );
}

/** Loads the fields that task rows leave out. Replays and exports do not have them. */
function useTaskDetails(task: TaskRow): TaskDetails | null {
  const { session, viewMode } = useRun();
  const source = useSource();
  const [details, setDetails] = useState<TaskDetails | null>(null);
  useEffect(() => {
    let isDone = false;
    setDetails(null);
    if (!viewMode) source.loadTask(session, task.board, task.id).then((found) => isDone || setDetails(found), () => undefined);
    return () => {
      isDone = true;
    };
  }, [session, task.board, task.id, task.changed, viewMode]);
  return details;
}

function OwnerSelect({ task, busy, onAssign }: { task: TaskRow; busy: boolean; onAssign(owner: string): void }) {
  const { runView } = useRun();
  const owners = listOwners(runView, task.board);
  if (task.owner && !owners.some(([name]) => name === task.owner)) owners.push([task.owner, task.owner]);
  return (
    <select value={task.owner} disabled={busy} aria-label="Owner" onChange={(event) => onAssign(event.currentTarget.value)}>
      <option value="">nobody</option>
      {owners.map(([name, label]) => <option key={name} value={name}>{label}</option>)}
    </select>
  );
}

function TaskLinks({ ids, open, onShow }: { ids: readonly string[]; open: readonly TaskRow[]; onShow(id: string): void }) {
  const waits = new Set(open.map((each) => each.id));
  return (
    <span class="links">
      {ids.map((id) => (
        <button key={id} type="button" class={`task-link ${waits.has(id) ? "" : "task-link-done"}`} onClick={() => onShow(id)}>#{id}</button>
      ))}
    </span>
  );
}

export function NewTaskDrawer({ board, onClose }: { board: string; onClose(): void }) {
  const { session, runView } = useRun();
  const source = useSource();
  const [busy, problem, runAction] = useAction();
  const [owner, setOwner] = useState("");
  const [blockers, setBlockers] = useState("");
  const waits = blockers.split(/[\s,#]+/).filter(Boolean);
  return (
    <Drawer title="New task" onClose={onClose}>
      <TaskForm busy={busy} problem={problem} label="Add" onCancel={onClose}
        onDone={async (subject, description) => {
          if (await runAction(() => source.addTask(session, { board, subject, description, owner, blocked_by: waits }))) onClose();
        }}>
        <label>Owner
          <select value={owner} onChange={(event) => setOwner(event.currentTarget.value)}>
            <option value="">any free member</option>
            {listOwners(runView, board).map(([name, label]) => <option key={name} value={name}>{label}</option>)}
          </select>
        </label>
        <label>Waits for
          <input value={blockers} placeholder="task numbers, such as 3, 4" inputMode="numeric"
            onInput={(event) => setBlockers(event.currentTarget.value)} />
        </label>
      </TaskForm>
    </Drawer>
  );
}

function TaskForm(props: {
  label: string;
  busy: boolean;
  problem: string;
  subject?: string;
  description?: string;
  children?: preact.ComponentChildren;
  onCancel(): void;
  onDone(subject: string, description: string): void;
}) {
  const [subject, setSubject] = useState(props.subject ?? "");
  const [description, setDescription] = useState(props.description ?? "");
  return (
    <form class="task-form" onSubmit={(event) => {
      event.preventDefault();
      if (subject.trim()) props.onDone(subject.trim(), description);
    }}>
      <label>Subject
        <input value={subject} required ref={(box) => { if (!subject) box?.focus(); }} onInput={(event) => setSubject(event.currentTarget.value)} />
      </label>
      <label>Description
        <textarea rows={6} value={description} onInput={(event) => setDescription(event.currentTarget.value)} />
      </label>
      {props.children}
      <Problem text={props.problem} />
      <div class="drawer-actions">
        <button type="submit" class="main" disabled={props.busy || !subject.trim()}>{props.label}</button>
        <button type="button" onClick={props.onCancel}>Cancel</button>
      </div>
    </form>
  );
}
