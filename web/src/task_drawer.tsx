/** One task with everything it holds, to read and to change; and the form for a new one. */

import { useEffect, useState } from "preact/hooks";
import { Confirmed, Cost, Problem, Time, Who, useOrder } from "./bits";
import { useNow, useRun, useSource } from "./context";
import { ago, clock } from "./format";
import { Markdown } from "./markdown";
import { Drawer } from "./drawer";
import { openBlockers, ownersOn, statusWords } from "./tasks";
import type { TaskRow, WholeTask } from "./types";

export function TaskDrawer({ task, onShow, onClose, onMove }: {
  task: TaskRow;
  onShow(id: string): void;
  onClose(): void;
  /** Puts it before or behind its neighbour; where there is none, it is not there. */
  onMove?: { earlier?(): void; later?(): void };
}) {
  const { session, state, steers } = useRun();
  const source = useSource();
  const now = useNow();
  const whole = useWhole(task);
  /** The words as they were when the person began to change them. */
  const [before, setEditing] = useState<{ subject: string; description: string } | null>(null);
  const [busy, problem, give] = useOrder();
  const change = (wish: Record<string, unknown>) => give(() => source.changeTask(session, task.board, task.id, wish));
  const waits = openBlockers(state, task);
  const blocks = state.tasks.list.filter((each) => each.board === task.board && each.blocked_by.includes(task.id));
  if (before) {
    return (
      <Drawer title={`Task ${task.id}`} onClose={onClose}>
        <TaskForm busy={busy} problem={problem} words="Save" subject={before.subject} description={before.description}
          onCancel={() => setEditing(null)}
          onDone={async (subject, description) => {
            // Only what the person changed: the rest may be another meanwhile.
            const wish = {
              ...(subject !== before.subject && { subject }),
              ...(description !== before.description && { description }),
            };
            if (!Object.keys(wish).length || (await change(wish))) setEditing(null);
          }} />
      </Drawer>
    );
  }
  return (
    <Drawer title={`Task ${task.id}`} onClose={onClose}>
      <h3 class="task-whole">{task.subject}</h3>
      {whole?.description && <Markdown text={whole.description} />}
      <dl class="facts">
        <dt>Stands</dt>
        <dd>{statusWords(task.status)}, <Time at={task.changed} text={`${ago(task.changed, now)} ago`} /></dd>
        <dt>Owner</dt>
        <dd>{steers ? <Owner task={task} busy={busy} onGive={(owner) => void change({ owner })} /> : task.owner ? <Who name={task.owner} /> : "nobody"}</dd>
        {task.blocked_by.length > 0 && <dt>Waits for</dt>}
        {task.blocked_by.length > 0 && <dd><Links ids={task.blocked_by} open={waits} onShow={onShow} /></dd>}
        {blocks.length > 0 && <dt>Holds up</dt>}
        {blocks.length > 0 && <dd><Links ids={blocks.map((each) => each.id)} open={blocks} onShow={onShow} /></dd>}
        <dt>Cost</dt>
        <dd><Cost usd={task.usd} tokens={task.tokens} /></dd>
      </dl>
      <Problem text={problem} />
      {steers && (
        <div class="drawer-orders">
          <button type="button" disabled={!whole} onClick={() => whole && setEditing({ subject: task.subject, description: whole.description })}>Edit</button>
          {onMove && <button type="button" disabled={busy || !onMove.earlier} onClick={onMove.earlier}>Earlier</button>}
          {onMove && <button type="button" disabled={busy || !onMove.later} onClick={onMove.later}>Later</button>}
          {task.status !== "completed" && <button type="button" disabled={busy} onClick={() => void change({ status: "completed" })}>Mark done</button>}
          {task.status !== "pending" && <button type="button" disabled={busy} onClick={() => void change({ status: "pending" })}>Back to do</button>}
          <Confirmed words="Delete" sure="Delete it?" class="bad" disabled={busy} onSure={() => {
            void change({ status: "deleted" });
            onClose();
          }} />
        </div>
      )}
      <h4>What became of it</h4>
      <ol class="moves">
        {task.moves.map(([at, status, owner], index) => (
          <li key={index}><Time at={at} text={clock(at)} /> {statusWords(status)}{owner && <> · <Who name={owner} /></>}</li>
        ))}
      </ol>
    </Drawer>
  );
}

/** What the rows leave out; of the past, and of an export, there is nothing to ask. */
function useWhole(task: TaskRow): WholeTask | null {
  const { session, within } = useRun();
  const source = useSource();
  const [whole, setWhole] = useState<WholeTask | null>(null);
  useEffect(() => {
    let over = false;
    setWhole(null);
    if (!within) source.task(session, task.board, task.id).then((found) => over || setWhole(found), () => undefined);
    return () => {
      over = true;
    };
  }, [session, task.board, task.id, task.changed, within]);
  return whole;
}

function Owner({ task, busy, onGive }: { task: TaskRow; busy: boolean; onGive(owner: string): void }) {
  const { state } = useRun();
  const owners = ownersOn(state, task.board);
  if (task.owner && !owners.some(([name]) => name === task.owner)) owners.push([task.owner, task.owner]);
  return (
    <select value={task.owner} disabled={busy} aria-label="Owner" onChange={(event) => onGive(event.currentTarget.value)}>
      <option value="">nobody</option>
      {owners.map(([name, words]) => <option key={name} value={name}>{words}</option>)}
    </select>
  );
}

function Links({ ids, open, onShow }: { ids: readonly string[]; open: readonly TaskRow[]; onShow(id: string): void }) {
  const waits = new Set(open.map((each) => each.id));
  return (
    <span class="links">
      {ids.map((id) => (
        <button key={id} type="button" class={`link-to ${waits.has(id) ? "" : "link-to-done"}`} onClick={() => onShow(id)}>#{id}</button>
      ))}
    </span>
  );
}

export function NewTask({ board, onClose }: { board: string; onClose(): void }) {
  const { session, state } = useRun();
  const source = useSource();
  const [busy, problem, give] = useOrder();
  const [owner, setOwner] = useState("");
  const [blockers, setBlockers] = useState("");
  const waits = blockers.split(/[\s,#]+/).filter(Boolean);
  return (
    <Drawer title="New task" onClose={onClose}>
      <TaskForm busy={busy} problem={problem} words="Add" onCancel={onClose}
        onDone={async (subject, description) => {
          if (await give(() => source.addTask(session, { board, subject, description, owner, blocked_by: waits }))) onClose();
        }}>
        <label>Owner
          <select value={owner} onChange={(event) => setOwner(event.currentTarget.value)}>
            <option value="">whoever is free</option>
            {ownersOn(state, board).map(([name, words]) => <option key={name} value={name}>{words}</option>)}
          </select>
        </label>
        <label>Waits for
          <input value={blockers} placeholder="numbers of tasks, like 3, 4" inputMode="numeric"
            onInput={(event) => setBlockers(event.currentTarget.value)} />
        </label>
      </TaskForm>
    </Drawer>
  );
}

function TaskForm(props: {
  words: string;
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
      <div class="drawer-orders">
        <button type="submit" class="main" disabled={props.busy || !subject.trim()}>{props.words}</button>
        <button type="button" onClick={props.onCancel}>Cancel</button>
      </div>
    </form>
  );
}
