/** The letters of a run as a diagram needs them: those that are wanted, and where each of their people stands. */

import type { LetterRow } from "./types";

export interface Wish {
  words: string;
  who: string;
  /** Only what agents and people wrote, not what the team's protocol says. */
  messages: boolean;
}

/** A person at the keyboard writes as `user`, and the lead as `team-lead`. */
export const called = (name: string): string => (name === "team-lead" ? "lead" : name === "user" ? "you" : name);

export function wanted(letters: readonly LetterRow[], { words, who, messages }: Wish): readonly LetterRow[] {
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!parts.length && !who && !messages) return letters;
  return letters.filter((each) => {
    if (messages && each.kind !== "message") return false;
    if (who && called(each.sender) !== who && called(each.to) !== who) return false;
    const text = `${each.sender} ${each.to} ${each.kind} ${each.summary} ${each.text}`.toLowerCase();
    return parts.every((part) => text.includes(part));
  });
}

/** How many letters each wrote or read: the person first, then the lead, then all others as they come. */
export function peopleIn(letters: readonly LetterRow[]): Map<string, number> {
  const counts = new Map<string, number>([["you", 0], ["lead", 0]]);
  for (const each of letters) {
    for (const name of [called(each.sender), called(each.to)]) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  for (const name of ["you", "lead"]) if (!counts.get(name)) counts.delete(name);
  return counts;
}

const OTHERS = "others";

/** Those with a line of their own; where they are too many, the busiest, and one line for all others. */
export function linesFor(people: Map<string, number>, most: number): string[] {
  const names = [...people.keys()];
  if (names.length <= most) return names;
  const busiest = new Set(names.toSorted((one, other) => people.get(other)! - people.get(one)!).slice(0, most - 1));
  return [...names.filter((each) => busiest.has(each)), OTHERS];
}
