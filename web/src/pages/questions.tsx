/** Questions of agents to a person, with forms to answer them. */

import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AgentName, Choices, Empty, Problem, Time, useAction } from "../components";
import { ToolInput } from "../blocks";
import { RunContext, useNow, useQuestions, useRun, useSource } from "../context";
import { TextDiff } from "../diff";
import { formatAge, formatClock, hidesTextAsMarkdown, makeVisible } from "../format";
import { Markdown } from "../markdown";
import { buildRunPath } from "../router";
import type { Answer, ChoiceQuestion, OpenQuestion, PermissionQuestion, PlanApprovalQuestion, Question, QuestionRow, Remember, Suggestion } from "../types";

/** The open questions of all runs. */
export function QuestionsPage() {
  const questions = useQuestions();
  return (
    <div class="page page-questions">
      <header class="page-head"><h1>Questions</h1></header>
      <div class="scroll">
        {!questions.length && <Empty title="No open questions">Questions from all live runs appear here.</Empty>}
        {questions.map((each) => <QuestionCard key={`${each.session}/${each.id}`} openQuestion={each} withRun />)}
      </div>
    </div>
  );
}

/** Open and answered questions of one run. */
export function RunQuestionsPage() {
  const { session, runView, viewMode, canSteer } = useRun();
  const questions = useQuestions();
  const [tab, setTab] = useState<"open" | "answered" | "">("");
  const rows = runView.questions.list;
  const answered = useMemo(() => rows.filter((row) => row.answered).reverse(), [rows]);
  const waiting = useMemo(() => rows.filter((row) => !row.answered), [rows]);
  const open = canSteer && !viewMode ? questions.filter((each) => each.session === session) : [];
  const answerable = canSteer && !viewMode;
  const number = answerable ? open.length : waiting.length;
  const shown = tab || (number || !answered.length ? "open" : "answered");
  return (
    <div class="page page-questions">
      <header class="page-head">
        <h2>Questions</h2>
        <Choices<"open" | "answered"> label="Show" value={shown} onChange={(value) => setTab(value)}
          options={[["open", `Open ${number}`], ["answered", `Answered ${answered.length}`]]} />
      </header>
      <div class="scroll">
        {shown === "open" && open.map((each) => <QuestionCard key={each.id} openQuestion={each} />)}
        {shown === "open" && !answerable && waiting.map((row) => <PastQuestion key={row.id} row={row} />)}
        {shown === "open" && !number && <Empty title="Nothing to answer" />}
        {shown === "answered" && answered.slice(0, 200).map((row) => <PastQuestion key={row.id} row={row} />)}
        {shown === "answered" && !answered.length && <Empty title="No questions yet" />}
      </div>
    </div>
  );
}

function QuestionCard({ openQuestion, withRun = false }: { openQuestion: OpenQuestion; withRun?: boolean }) {
  const source = useSource();
  const now = useNow();
  const [busy, problem, runAction] = useAction();
  const [status, setStatus] = useState("");
  const answer = async (answer: Answer) => {
    let isAccepted = true;
    const done = await runAction(async () => {
      const reply = (await source.answerQuestion(openQuestion.session, openQuestion.id, answer)) as { stands?: unknown } | null;
      isAccepted = reply?.stands !== false;
    });
    if (done) setStatus(isAccepted ? `Answered. ${openQuestion.name} continues.` : "The question was already answered; your answer is ignored.");
  };
  const disabled = busy || status !== "";
  const { question } = openQuestion;
  return (
    <article class="question" aria-label={`${openQuestion.name} asks`}>
      <header>
        <Asker openQuestion={openQuestion} withRun={withRun} /> {describeQuestion(question)}
        <span class="soft">
          {withRun && <a href={buildRunPath(openQuestion.session, "questions")}>run {openQuestion.session.slice(0, 8)}</a>}{" "}
          <Time at={openQuestion.asked} text={formatAge(openQuestion.asked, now)} />
        </span>
      </header>
      {question.type === "permission" && <PermissionForm question={question} disabled={disabled} answer={answer} />}
      {question.type === "choice" && <ChoiceForm question={question} disabled={disabled} answer={answer} />}
      {question.type === "plan" && (
        <PlanForm question={question} previous={openQuestion.previous_plan ?? ""} disabled={disabled} answer={answer} />
      )}
      <Problem text={problem} />
      {status && <p class="soft" role="status">{status}</p>}
    </article>
  );
}

function Asker({ openQuestion, withRun }: { openQuestion: OpenQuestion; withRun: boolean }) {
  const context = useContext(RunContext);
  if (context) return <AgentName name={openQuestion.name} agent={context.runView.agents.get(openQuestion.agent)} />;
  const href = withRun ? buildRunPath(openQuestion.session, "agent", openQuestion.agent) : undefined;
  return <a class="agent-name tint" href={href}><i aria-hidden="true" />{openQuestion.name}</a>;
}

function describeQuestion(question: Question): string {
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
  disabled: boolean;
  answer(answer: Answer): void;
}

function PermissionForm({ question, disabled, answer }: Form<PermissionQuestion>) {
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
      setProblem(`This input is not valid: ${error instanceof Error ? error.message : error}`);
    }
  };
  const { command: _, ...rest } = question.input;
  const saved = question.suggestions?.find((each) => each.destination === "localSettings");
  return (
    <>
      {question.reason && <p class="soft">{question.reason}</p>}
      {editing ? (
        <textarea class="mono question-edit" rows={Math.min(14, Math.max(4, text.split("\n").length + 1))} value={text}
          aria-label="The call's input" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
      ) : (
        command !== null && <pre class="command" tabIndex={0} aria-label="Command">{makeVisible(command)}</pre>
      )}
      {!editing && <ToolInput input={command === null ? question.input : rest} />}
      <Problem text={problem} />
      <div class="answers">
        <button type="button" class="main" disabled={disabled} onClick={() => allow("once")}>Allow once</button>
        {question.rule && (
          <button type="button" disabled={disabled} onClick={() => allow("session")}>
            Allow for this session<small class="mono">{question.rule}</small>
          </button>
        )}
        {saved && (
          <button type="button" disabled={disabled} onClick={() => allow("settings")}>
            Always allow<small class="mono">{describeSuggestion(saved)}</small>
          </button>
        )}
        <button type="button" disabled={disabled} onClick={edit} aria-pressed={editing}>{editing ? "Do not change it" : "Change the input"}</button>
        <button type="button" class="bad" disabled={disabled} aria-expanded={denying} onClick={() => setDenying(!denying)}>Deny…</button>
      </div>
      {denying && <DenyForm disabled={disabled} answer={answer} />}
    </>
  );
}

/** Describes what a suggestion would change. */
function describeSuggestion(suggestion: Suggestion): string {
  switch (suggestion.type) {
    case "addRules":
      return suggestion.rules.map((each) => each.toolName + (each.ruleContent ? `(${each.ruleContent})` : "")).join(", ");
    case "addDirectories":
      return `work in ${suggestion.directories.join(", ")}`;
    case "setMode":
      return `mode ${suggestion.mode}`;
  }
}

function DenyForm({ disabled, answer, prompt = "Why not? The agent gets the reason." }: {
  disabled: boolean;
  answer(answer: Answer): void;
  prompt?: string;
}) {
  const [reason, setReason] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <form class="deny" onSubmit={(event) => {
      event.preventDefault();
      answer({ type: "denied", reason: reason.trim() || "The user said no." });
    }}>
      <textarea rows={2} value={reason} placeholder={prompt} aria-label={prompt} ref={box}
        onInput={(event) => setReason(event.currentTarget.value)} />
      <button type="submit" class="danger" disabled={disabled}>Deny</button>
    </form>
  );
}

const OTHER = "\u0000other";

function ChoiceForm({ question, disabled, answer }: Form<ChoiceQuestion>) {
  const [chosen, setChosen] = useState<Record<string, string[]>>({});
  const [own, setOwn] = useState<Record<string, string>>({});
  const getPicked = (text: string) => chosen[text] ?? [];
  const getAnswers = (text: string) =>
    getPicked(text).map((label) => (label === OTHER ? (own[text] ?? "").trim() : label)).filter(Boolean);
  const ready = question.choices.every((each) => getAnswers(each.question).length > 0);
  const pick = (text: string, label: string, several: boolean) => {
    const before = getPicked(text);
    const now = !several ? [label] : before.includes(label) ? before.filter((each) => each !== label) : [...before, label];
    setChosen({ ...chosen, [text]: now });
  };
  const send = () =>
    answer({
      type: "chosen",
      answers: Object.fromEntries(question.choices.map((each) => [each.question, getAnswers(each.question).join(", ")])),
    });
  return (
    <form onSubmit={(event) => {
      event.preventDefault();
      if (ready) send();
    }}>
      {question.choices.map((choice) => (
        <fieldset key={choice.question} class="choice" disabled={disabled}>
          <legend>{choice.question}{choice.multiSelect && <span class="soft"> You can choose several.</span>}</legend>
          {[...choice.options, { label: OTHER, description: "" }].map((option) => (
            <label key={option.label} class="option">
              <input type={choice.multiSelect ? "checkbox" : "radio"} name={`${question.id}/${choice.question}`}
                checked={getPicked(choice.question).includes(option.label)}
                onChange={() => pick(choice.question, option.label, !!choice.multiSelect)} />
              {option.label === OTHER ? (
                <input type="text" placeholder="Something else" aria-label="Something else" value={own[choice.question] ?? ""}
                  onInput={(event) => {
                    setOwn({ ...own, [choice.question]: event.currentTarget.value });
                    if (!getPicked(choice.question).includes(OTHER)) pick(choice.question, OTHER, !!choice.multiSelect);
                  }} />
              ) : (
                <span><strong>{option.label}</strong>{option.description && <small>{option.description}</small>}</span>
              )}
            </label>
          ))}
        </fieldset>
      ))}
      <div class="answers"><button type="submit" class="main" disabled={disabled || !ready}>Answer</button></div>
    </form>
  );
}

/** A plan. Its source is shown if Markdown would hide a part of it, such as a comment or the target of a link. */
function PlanView({ text }: { text: string }) {
  return hidesTextAsMarkdown(text)
    ? <pre class="plan-source" tabIndex={0} aria-label="Plan">{makeVisible(text)}</pre>
    : <Markdown text={text} />;
}

function PlanForm({ question, previous, disabled, answer }: Form<PlanApprovalQuestion> & { previous: string }) {
  const [tab, setTab] = useState<"plan" | "changes">("plan");
  const [denying, setDenying] = useState(false);
  return (
    <>
      {previous && (
        <Choices<"plan" | "changes"> label="Show" value={tab} onChange={(value) => setTab(value)}
          options={[["plan", "The plan"], ["changes", "Changes since the last version"]]} />
      )}
      <div class="plan">
        {tab === "plan" ? <PlanView text={question.plan} /> : <TextDiff before={makeVisible(previous)} after={makeVisible(question.plan)} label="Changes to the plan" />}
      </div>
      {!!question.wishes?.length && (
        <p class="soft">It will ask for: {question.wishes.map((wish) => <code key={wish}>{wish}</code>)}</p>
      )}
      <div class="answers">
        <button type="button" class="main" disabled={disabled} onClick={() => answer({ type: "approved", digest: question.digest })}>
          Approve
        </button>
        <button type="button" disabled={disabled}
          onClick={() => answer({ type: "approved", digest: question.digest, mode: "acceptEdits" })}>
          Approve, and accept edits
        </button>
        <button type="button" class="bad" disabled={disabled} aria-expanded={denying} onClick={() => setDenying(!denying)}>Send back…</button>
      </div>
      {denying && <DenyForm disabled={disabled} answer={answer} prompt="What should change?" />}
    </>
  );
}

/** A question that can no longer be answered, or not here. */
function PastQuestion({ row }: { row: QuestionRow }) {
  const { question, answer } = row;
  return (
    <article class="question question-past">
      <header>
        <AgentName name={row.name} /> {describeQuestion(question)}
        <span class="soft"><Time at={row.asked} text={formatClock(row.asked)} /></span>
      </header>
      {question.type === "permission" && (
        typeof question.input.command === "string"
          ? <pre class="command">{makeVisible(question.input.command)}</pre>
          : <ToolInput input={question.input} />
      )}
      {question.type === "choice" && question.choices.map((each) => <p key={each.question}>{each.question}</p>)}
      {question.type === "plan" && <details><summary>The plan</summary><PlanView text={question.plan} /></details>}
      <p class="answer-text">{row.answered ? describeAnswer(answer) : "Not answered yet at this point."}</p>
    </article>
  );
}

function describeAnswer(answer: Answer | null): string {
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
      return "Withdrawn: nobody is waiting for the answer.";
  }
}
