/** What agents ask a person, answered from any screen. */

import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choices, Empty, Problem, Time, Who, useOrder } from "../bits";
import { Input } from "../blocks";
import { RunContext, useNow, useQuestions, useRun, useSource } from "../context";
import { Changes } from "../diff";
import { ago, clock } from "../format";
import { Markdown } from "../markdown";
import { runPath } from "../router";
import type { Answer, ApprovePlan, Choose, MayRun, OpenQuestion, Question, QuestionRow, Remember, Suggestion } from "../types";

/** The open questions of all runs. */
export function QuestionsPage() {
  const questions = useQuestions();
  return (
    <div class="page page-questions">
      <header class="page-head"><h1>Questions</h1></header>
      <div class="scroll">
        {!questions.length && <Empty title="Nobody asks anything">Questions of all live runs appear here, as they are asked.</Empty>}
        {questions.map((each) => <QuestionCard key={`${each.session}/${each.id}`} asked={each} withRun />)}
      </div>
    </div>
  );
}

/** The open questions of one run, and those that were answered. */
export function RunQuestionsPage() {
  const { session, state, within, steers } = useRun();
  const questions = useQuestions();
  const [look, setLook] = useState<"open" | "answered" | "">("");
  const rows = state.questions.list;
  const answered = useMemo(() => rows.filter((row) => row.answered).reverse(), [rows]);
  const waiting = useMemo(() => rows.filter((row) => !row.answered), [rows]);
  const open = steers && !within ? questions.filter((each) => each.session === session) : [];
  const answerable = steers && !within;
  const number = answerable ? open.length : waiting.length;
  const shown = look || (number || !answered.length ? "open" : "answered");
  return (
    <div class="page page-questions">
      <header class="page-head">
        <h2>Questions</h2>
        <Choices<"open" | "answered"> label="Show" value={shown} onChange={(value) => setLook(value)}
          options={[["open", `Open ${number}`], ["answered", `Answered ${answered.length}`]]} />
      </header>
      <div class="scroll">
        {shown === "open" && open.map((each) => <QuestionCard key={each.id} asked={each} />)}
        {shown === "open" && !answerable && waiting.map((row) => <PastQuestion key={row.id} row={row} />)}
        {shown === "open" && !number && <Empty title="Nothing to answer" />}
        {shown === "answered" && answered.slice(0, 200).map((row) => <PastQuestion key={row.id} row={row} />)}
        {shown === "answered" && !answered.length && <Empty title="Nothing was asked yet" />}
      </div>
    </div>
  );
}

function QuestionCard({ asked, withRun = false }: { asked: OpenQuestion; withRun?: boolean }) {
  const source = useSource();
  const now = useNow();
  const [busy, problem, give] = useOrder();
  const [gave, setGave] = useState("");
  const answer = async (answer: Answer) => {
    let stands = true;
    const done = await give(async () => {
      const told = (await source.answer(asked.session, asked.id, answer)) as { stands?: unknown } | null;
      stands = told?.stands !== false;
    });
    if (done) setGave(stands ? `Answered. ${asked.name} goes on.` : "Somebody answered first; this answer is dropped.");
  };
  const shut = busy || gave !== "";
  const { question } = asked;
  return (
    <article class="question" aria-label={`${asked.name} asks`}>
      <header>
        <Asker asked={asked} withRun={withRun} /> {titleOf(question)}
        <span class="soft">
          {withRun && <a href={runPath(asked.session, "questions")}>run {asked.session.slice(0, 8)}</a>}{" "}
          <Time at={asked.asked} text={ago(asked.asked, now)} />
        </span>
      </header>
      {question.type === "permission" && <MayRunForm question={question} shut={shut} answer={answer} />}
      {question.type === "choice" && <ChooseForm question={question} shut={shut} answer={answer} />}
      {question.type === "plan" && (
        <PlanForm question={question} previous={asked.previous_plan ?? ""} shut={shut} answer={answer} />
      )}
      <Problem text={problem} />
      {gave && <p class="soft" role="status">{gave}</p>}
    </article>
  );
}

function Asker({ asked, withRun }: { asked: OpenQuestion; withRun: boolean }) {
  const view = useContext(RunContext);
  if (view) return <Who name={asked.name} agent={view.state.agents.get(asked.agent)} />;
  const href = withRun ? runPath(asked.session, "agent", asked.agent) : undefined;
  return <a class="who tint" href={href}><i aria-hidden="true" />{asked.name}</a>;
}

function titleOf(question: Question): string {
  switch (question.type) {
    case "permission":
      return `wants to use ${question.tool}`;
    case "choice":
      return question.choices.length > 1 ? "has questions" : "has a question";
    case "plan":
      return "presents a plan";
  }
}

interface Form<Kind> {
  question: Kind;
  shut: boolean;
  answer(answer: Answer): void;
}

function MayRunForm({ question, shut, answer }: Form<MayRun>) {
  const [editing, setEditing] = useState(false);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const [denying, setDenying] = useState(false);
  const command = typeof question.input.command === "string" ? question.input.command : null;
  const edit = () => {
    setText(command ?? JSON.stringify(question.input, null, 2));
    setEditing(!editing);
    setProblem("");
  };
  const allow = (remember: Remember) => {
    if (!editing) return answer({ type: "allowed", remember });
    if (command !== null) return answer({ type: "allowed", remember, input: { ...question.input, command: text } });
    try {
      const input: unknown = JSON.parse(text);
      if (typeof input !== "object" || !input || Array.isArray(input)) throw new Error("it is not an object");
      answer({ type: "allowed", remember, input: input as Record<string, unknown> });
    } catch (error) {
      setProblem(`This input cannot be read: ${error instanceof Error ? error.message : error}`);
    }
  };
  const { command: _, ...rest } = question.input;
  const kept = question.suggestions?.find((each) => each.destination === "localSettings");
  return (
    <>
      {question.reason && <p class="soft">{question.reason}</p>}
      {editing ? (
        <textarea class="mono question-edit" rows={Math.min(14, Math.max(4, text.split("\n").length + 1))} value={text}
          aria-label="The call's input" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
      ) : (
        command !== null && <pre class="command" tabIndex={0} aria-label="Command">{command}</pre>
      )}
      {!editing && <Input input={command === null ? question.input : rest} />}
      <Problem text={problem} />
      <div class="answers">
        <button type="button" class="main" disabled={shut} onClick={() => allow("once")}>Allow once</button>
        {question.rule && (
          <button type="button" disabled={shut} onClick={() => allow("session")}>
            Allow for this session<small class="mono">{question.rule}</small>
          </button>
        )}
        {kept && (
          <button type="button" disabled={shut} onClick={() => allow("settings")}>
            Always allow<small class="mono">{changeWords(kept)}</small>
          </button>
        )}
        <button type="button" disabled={shut} onClick={edit} aria-pressed={editing}>{editing ? "Do not change it" : "Change the input"}</button>
        <button type="button" class="bad" disabled={shut} aria-expanded={denying} onClick={() => setDenying(!denying)}>Deny…</button>
      </div>
      {denying && <Deny shut={shut} answer={answer} />}
    </>
  );
}

/** What would change about what agents may do. */
function changeWords(suggestion: Suggestion): string {
  switch (suggestion.type) {
    case "addRules":
      return suggestion.rules.map((each) => each.toolName + (each.ruleContent ? `(${each.ruleContent})` : "")).join(", ");
    case "addDirectories":
      return `work in ${suggestion.directories.join(", ")}`;
    case "setMode":
      return `mode ${suggestion.mode}`;
  }
}

function Deny({ shut, answer, words = "Why not? It is told so." }: {
  shut: boolean;
  answer(answer: Answer): void;
  words?: string;
}) {
  const [reason, setReason] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <form class="deny" onSubmit={(event) => {
      event.preventDefault();
      answer({ type: "denied", reason: reason.trim() || "The person said no." });
    }}>
      <textarea rows={2} value={reason} placeholder={words} aria-label={words} ref={box}
        onInput={(event) => setReason(event.currentTarget.value)} />
      <button type="submit" class="sure" disabled={shut}>Deny</button>
    </form>
  );
}

const OTHER = "\u0000other";

function ChooseForm({ question, shut, answer }: Form<Choose>) {
  const [chosen, setChosen] = useState<Record<string, string[]>>({});
  const [own, setOwn] = useState<Record<string, string>>({});
  const picked = (words: string) => chosen[words] ?? [];
  const said = (words: string) =>
    picked(words).map((label) => (label === OTHER ? (own[words] ?? "").trim() : label)).filter(Boolean);
  const ready = question.choices.every((each) => said(each.question).length > 0);
  const pick = (words: string, label: string, several: boolean) => {
    const before = picked(words);
    const now = !several ? [label] : before.includes(label) ? before.filter((each) => each !== label) : [...before, label];
    setChosen({ ...chosen, [words]: now });
  };
  const send = () =>
    answer({
      type: "chosen",
      answers: Object.fromEntries(question.choices.map((each) => [each.question, said(each.question).join(", ")])),
    });
  return (
    <form onSubmit={(event) => {
      event.preventDefault();
      if (ready) send();
    }}>
      {question.choices.map((choice) => (
        <fieldset key={choice.question} class="choice" disabled={shut}>
          <legend>{choice.question}{choice.multiSelect && <span class="soft"> Several are possible.</span>}</legend>
          {[...choice.options, { label: OTHER, description: "" }].map((option) => (
            <label key={option.label} class="option">
              <input type={choice.multiSelect ? "checkbox" : "radio"} name={`${question.id}/${choice.question}`}
                checked={picked(choice.question).includes(option.label)}
                onChange={() => pick(choice.question, option.label, !!choice.multiSelect)} />
              {option.label === OTHER ? (
                <input type="text" placeholder="Something else" aria-label="Something else" value={own[choice.question] ?? ""}
                  onInput={(event) => {
                    setOwn({ ...own, [choice.question]: event.currentTarget.value });
                    if (!picked(choice.question).includes(OTHER)) pick(choice.question, OTHER, !!choice.multiSelect);
                  }} />
              ) : (
                <span><strong>{option.label}</strong>{option.description && <small>{option.description}</small>}</span>
              )}
            </label>
          ))}
        </fieldset>
      ))}
      <div class="answers"><button type="submit" class="main" disabled={shut || !ready}>Answer</button></div>
    </form>
  );
}

function PlanForm({ question, previous, shut, answer }: Form<ApprovePlan> & { previous: string }) {
  const [look, setLook] = useState<"plan" | "changes">("plan");
  const [denying, setDenying] = useState(false);
  return (
    <>
      {previous && (
        <Choices<"plan" | "changes"> label="Show" value={look} onChange={(value) => setLook(value)}
          options={[["plan", "The plan"], ["changes", "Changes since the last one"]]} />
      )}
      <div class="plan">
        {look === "plan" ? <Markdown text={question.plan} /> : <Changes before={previous} after={question.plan} label="Changes of the plan" />}
      </div>
      {!!question.wishes?.length && (
        <p class="soft">It will ask for: {question.wishes.map((wish) => <code key={wish}>{wish}</code>)}</p>
      )}
      <div class="answers">
        <button type="button" class="main" disabled={shut} onClick={() => answer({ type: "approved", digest: question.digest })}>
          Approve
        </button>
        <button type="button" disabled={shut}
          onClick={() => answer({ type: "approved", digest: question.digest, mode: "acceptEdits" })}>
          Approve, and accept its edits
        </button>
        <button type="button" class="bad" disabled={shut} aria-expanded={denying} onClick={() => setDenying(!denying)}>Send back…</button>
      </div>
      {denying && <Deny shut={shut} answer={answer} words="What should be different?" />}
    </>
  );
}

/** A question that can no longer be answered, or not from here. */
function PastQuestion({ row }: { row: QuestionRow }) {
  const { question, answer } = row;
  return (
    <article class="question question-past">
      <header>
        <Who name={row.name} /> {titleOf(question)}
        <span class="soft"><Time at={row.asked} text={clock(row.asked)} /></span>
      </header>
      {question.type === "permission" && (
        typeof question.input.command === "string"
          ? <pre class="command">{question.input.command}</pre>
          : <Input input={question.input} />
      )}
      {question.type === "choice" && question.choices.map((each) => <p key={each.question}>{each.question}</p>)}
      {question.type === "plan" && <details><summary>The plan</summary><Markdown text={question.plan} /></details>}
      <p class="gave">{row.answered ? gave(answer) : "Not answered at this moment."}</p>
    </article>
  );
}

function gave(answer: Answer | null): string {
  switch (answer?.type) {
    case "allowed":
      return { once: "Allowed once.", session: "Allowed for the session.", settings: "Always allowed." }[answer.remember]
        + (answer.input ? " The input was changed." : "");
    case "denied":
      return `Denied${answer.by === "policy" ? " by a rule" : ""}: ${answer.reason}`;
    case "chosen":
      return Object.values(answer.answers).join("; ");
    case "approved":
      return `Approved${answer.by === "policy" ? " by a rule" : ""}${answer.mode ? `, in the mode ${answer.mode}` : ""}.`;
    default:
      return "Withdrawn: nobody waits for the answer any more.";
  }
}
