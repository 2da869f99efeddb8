/** Entry point of Shoal's web view. */

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { QuestionsContext, RunContext, RunListVersionContext, SourceContext, useRedraw, useSource, type RunContextValue } from "./context";
import { createSource } from "./data_source";
import { Shell } from "./shell";
import { AgentPage } from "./pages/agent";
import { BoardPage } from "./pages/board";
import { CostPage } from "./pages/cost";
import { MailPage } from "./pages/mail";
import { QuestionsPage, RunQuestionsPage } from "./pages/questions";
import { Replay } from "./pages/replay";
import { RunsPage } from "./pages/runs";
import { TeamPage } from "./pages/team";
import { useRoute, type RunRoute } from "./router";
import { WatchedRun } from "./store";
import type { OpenQuestion } from "./types";
import "./styles/app.css";

const source = createSource();

function App() {
  const route = useRoute();
  const [questions, setQuestions] = useState<OpenQuestion[]>([]);
  const [runListVersion, setRunListVersion] = useState(0);
  useEffect(() => source.followQuestions(setQuestions, () => setRunListVersion((before) => before + 1)), []);
  useEffect(() => {
    document.title = questions.length ? `(${questions.length}) Shoal` : "Shoal";
  }, [questions.length]);
  return (
    <SourceContext.Provider value={source}>
      <RunListVersionContext.Provider value={runListVersion}><QuestionsContext.Provider value={questions}>
        {"session" in route ? (
          <Run key={route.session} route={route} />
        ) : (
          <Shell route={route}>{route.page === "questions" ? <QuestionsPage /> : <RunsPage />}</Shell>
        )}
      </QuestionsContext.Provider></RunListVersionContext.Provider>
    </SourceContext.Provider>
  );
}

function Run({ route }: { route: RunRoute }) {
  const { session, viewMode } = route;
  const source = useSource();
  const redraw = useRedraw();
  const watchedRun = useMemo(() => new WatchedRun(), [session]);
  useEffect(() => {
    const unsubscribe = watchedRun.onChange(redraw);
    const stop = source.watchRun(session, watchedRun);
    return () => {
      stop();
      unsubscribe();
    };
  }, [watchedRun]);
  const { view: runView } = watchedRun;
  const context: RunContextValue = { session, runView, viewMode: "", canSteer: source.canSteer && runView.live };
  return viewMode ? (
    <Replay context={context} route={route} watchedRun={watchedRun}><Page route={route} /></Replay>
  ) : (
    <RunContext.Provider value={context}>
      <Shell route={route} watchedRun={watchedRun}>{watchedRun.isLoaded && <Page route={route} />}</Shell>
    </RunContext.Provider>
  );
}

function Page({ route }: { route: RunRoute }) {
  switch (route.page) {
    case "agent":
      return <AgentPage key={route.agent} agent={route.agent} />;
    case "board":
      return <BoardPage />;
    case "mail":
      return <MailPage />;
    case "cost":
      return <CostPage />;
    case "questions":
      return <RunQuestionsPage />;
    default:
      return <TeamPage />;
  }
}

if (!location.hash || location.hash === "#") history.replaceState(null, "", source.start);
const place = document.getElementById("app");
if (place) render(<App />, place);
