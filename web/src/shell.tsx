/** What is around every page: where one can go, which run this is, and how it stands. */

import type { ComponentChildren } from "preact";
import { useContext, useRef } from "preact/hooks";
import { Empty, StateMark, tint } from "./bits";
import { RunContext, agentPath, useQuestions, useSource, type RunView } from "./context";
import { count, dollars, folder, oneLine } from "./format";
import { Icon, type IconName } from "./icons";
import { RUN_PAGES, runPath, type Route, type RunPage } from "./router";
import type { Watched } from "./store";
import { Windowed } from "./windowed";

const TITLES: Record<RunPage, string> = {
  team: "Team", board: "Board", mail: "Mail", cost: "Cost", questions: "Questions", replay: "Replay",
};

export function Shell({ route, watched, children }: {
  route: Route;
  watched?: Watched;
  children: ComponentChildren;
}) {
  const main = useRef<HTMLElement>(null);
  const view = useContext(RunContext);
  return (
    <div class={`shell ${view ? "shell-run" : ""}`}>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>Go to the page</button>
      <Side route={route} view={view} />
      <div class="content">
        {view && <Top view={view} />}
        <main ref={main} tabIndex={-1}>
          {children}
          {watched && !watched.begun && (watched.failure
            ? <Empty title={watched.failure}><a href="#/runs">All runs</a></Empty>
            : <p class="loading soft" role="status">Reading…</p>)}
        </main>
      </div>
      {watched?.begun && !watched.connected && (
        <p class="toast" role="status">
          {watched.failure || "The connection is lost. It resumes where it was as soon as the server answers."}
        </p>
      )}
    </div>
  );
}

function Side({ route, view }: { route: Route; view: RunView | null }) {
  const source = useSource();
  const questions = useQuestions();
  const here = questions.filter((each) => each.session === view?.session).length;
  return (
    <aside class="side">
      {source.steers && (
        <nav aria-label="Shoal" class="side-home">
          <a class="brand" href="#/runs" aria-label="Shoal, all runs"><Icon name="fish" />Shoal</a>
          <Entry href="#/runs" icon="runs" words="Runs" here={route.page === "runs"} />
          <Entry href="#/questions" icon="questions" words="All questions" badge={questions.length}
            here={route.page === "questions" && !view} />
        </nav>
      )}
      {!source.steers && <p class="brand"><Icon name="fish" />Shoal</p>}
      {view && "session" in route && (
        <>
          <nav aria-label="This run" class="side-run">
            {RUN_PAGES.map((page) => (
              <Entry key={page} icon={page} words={TITLES[page]} badge={page === "questions" ? here : 0}
                href={runPath(view.session, page)}
                here={route.within ? page === "replay" : page === route.page || (page === "team" && route.page === "agent")} />
            ))}
          </nav>
          <Members view={view} current={route.agent} />
        </>
      )}
    </aside>
  );
}

function Entry(props: { href: string; icon: IconName; words: string; badge?: number; here: boolean }) {
  return (
    <a class="entry" href={props.href} aria-current={props.here ? "page" : undefined}>
      <Icon name={props.icon} />
      <span class="entry-words">{props.words}</span>
      {!!props.badge && <span class="badge" aria-label={`${props.badge} open`}>{props.badge}</span>}
    </a>
  );
}

function Members({ view, current }: { view: RunView; current: string }) {
  const agents = view.state.agents.list;
  if (!agents.length) return null;
  return (
    <section class="side-members" aria-label="Agents">
      <h2>Agents <span class="figures">{agents.length}</span></h2>
      <Windowed count={agents.length} height={28} keyOf={(index) => agents[index]!.id} label="Agents"
        show={current || null}>
        {(index) => {
          const agent = agents[index]!;
          const look = tint(agent.color);
          return (
            <a class={`member ${look.class}`} style={{ ...look.style, "--depth": String(Math.min(agent.depth, 4)) }}
              href={agentPath(view, agent)} aria-current={agent.id === current ? "page" : undefined}>
              <i aria-hidden="true" />
              <span class="member-name">{agent.name}</span>
              <StateMark state={agent.state} words={false} />
            </a>
          );
        }}
      </Windowed>
    </section>
  );
}

function Top({ view }: { view: RunView }) {
  const source = useSource();
  const { run, live, spend } = view.state;
  const spent = spend.list.at(-1);
  return (
    <header class="top">
      {source.steers && <a class="top-back" href="#/runs" aria-label="All runs"><Icon name="back" /></a>}
      <div class="top-what">
        <h1 title={run.prompt}>{oneLine(run.prompt) || run.session || "…"}</h1>
        <p class="top-where">
          <RunState live={live} ended={run.ended} began={run.began} />
          <span title={run.cwd}>{folder(run.cwd)}</span>
          <span class="wide">{run.model}</span>
          {run.mode && run.mode !== "default" && <span class="wide">{run.mode}</span>}
        </p>
      </div>
      <Spent usd={spent?.usd ?? 0} tokens={spent?.tokens ?? 0} run={run} />
    </header>
  );
}

export function RunState({ live, ended, began = 1 }: { live: boolean; ended: boolean; began?: number }) {
  if (!began) return null;
  if (live) return <span class="pill pill-live"><i aria-hidden="true" />live</span>;
  return ended ? <span class="pill">ended</span> : <span class="pill pill-gone">not running</span>;
}

function Spent({ usd, tokens, run }: { usd: number; tokens: number; run: RunView["state"]["run"] }) {
  const share = Math.max(
    run.budget_usd ? usd / run.budget_usd : 0,
    run.budget_tokens ? tokens / run.budget_tokens : 0,
  );
  const of = run.budget_usd ? ` of ${dollars(run.budget_usd)}` : "";
  return (
    <div class="top-spent">
      <p><strong>{dollars(usd)}</strong><span class="soft">{of}</span></p>
      <p class="soft">{count(tokens)}{run.budget_tokens ? ` of ${count(run.budget_tokens)}` : ""} tokens</p>
      {share > 0 && (
        <div class={`meter ${share >= 0.9 ? "meter-high" : ""}`} role="meter" aria-label="Share of the budget"
          aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
          <i style={{ width: `${Math.min(100, share * 100)}%` }} />
        </div>
      )}
    </div>
  );
}
