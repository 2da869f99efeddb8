/** Icons of the view, drawn with lines. */

const PATHS = {
  fish: "M3 12c4-6 10-6 14 0-4 6-10 6-14 0zm14 0 4-4v8zM7.5 11.5h.01",
  runs: "M4 6h16M4 12h16M4 18h10",
  team: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zm-6 8c0-3 3-5 6-5s6 2 6 5M17 12a2.500 2.500 0 1 0 0-5M17 15c3 0 5 1.500 5 4",
  board: "M4 5h4v14H4zM10 5h4v9h-4zM16 5h4v6h-4z",
  mail: "M6 4v16M18 4v16M6 8h12m-3-2.500L18 8l-3 2.500M18 16H6m3-2.500L6 16l3 2.500",
  cost: "M4 20V4M4 20h16M8 16v-4M12 16V8M16 16v-6",
  questions: "M4 5h16v11H11l-5 4v-4H4zM10 9a2 2 0 1 1 2.500 2L12 12M12 14h.01",
  replay: "M4 12a8 8 0 1 0 3-6.200M4 4v4h4M10 9l5 3-5 3z",
  back: "M15 5l-7 7 7 7",
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  next: "M9 5l7 7-7 7",
  previous: "M15 5l-7 7 7 7",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" width="20" height="20" fill="none" stroke="currentColor" stroke-width="1.7"
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
