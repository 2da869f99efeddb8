/** Current location in the view, stored in the address after `#`. */

import { useEffect, useState } from "preact/hooks";

export const RUN_PAGES = ["team", "board", "mail", "cost", "questions", "replay"] as const;
export type RunPage = (typeof RUN_PAGES)[number];

export type Route =
  | { page: "runs" }
  | { page: "questions" }
  | { page: RunPage | "agent"; session: string; agent: string; viewMode: "" | "replay" };

export type RunRoute = Extract<Route, { session: string }>;

export function parseRoute(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodePart);
  if (parts[0] === "questions") return { page: "questions" };
  if (parts[0] !== "run" || !parts[1]) return { page: "runs" };
  const session = parts[1];
  let rest = parts.slice(2);
  let viewMode: "" | "replay" = "";
  if (rest[0] === "replay") {
    viewMode = "replay";
    rest = rest.slice(1);
  }
  const [page = "team", agent = ""] = rest;
  if (page === "agent" && agent) return { page: "agent", session, agent, viewMode };
  const known = (RUN_PAGES as readonly string[]).includes(page) && page !== "replay";
  return { page: known ? (page as RunPage) : "team", session, agent: "", viewMode };
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Builds the address of a page of a run, or of its replay. */
export function buildRunPath(session: string, page: RunPage | "agent", agent = "", viewMode: "" | "replay" = ""): string {
  const parts = ["#", "run", encodeURIComponent(session)];
  if (viewMode) parts.push(viewMode);
  if (page !== "replay" && !(viewMode && page === "team")) parts.push(page);
  if (page === "replay" && !viewMode) parts.push("replay");
  if (agent) parts.push(encodeURIComponent(agent));
  return parts.join("/");
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const updateHash = () => setHash(location.hash);
    addEventListener("hashchange", updateHash);
    // Effects run after the first paint: the location may have changed since it was rendered.
    updateHash();
    return () => removeEventListener("hashchange", updateHash);
  }, []);
  return parseRoute(hash);
}
