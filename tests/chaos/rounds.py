"""Disturbs a lead and its agents at random, resumes it until all work is done, and finds faults."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from msgspec import Struct
from tests.chaos import person, trees
from tests.chaos.leads import Leads, leads
from tests.chaos.panes import Panes
from tests.chaos.proc import send
from tests.chaos.provider import Provider
from tests.chaos.team_lead import Start
from tests.chaos.troubles import TROUBLES, Scene, Trouble
from tests.chaos.works import AGENTS, WORKS, Part, Removal, Work

GONE = 5.0
"""Seconds after a lead's end until none of its processes runs."""
TRIES = 3
"""Number of times a lead that failed is resumed after its trouble is over."""
MOST_PASSED_OVER = 100
"""Number of unplayable plans in a row after which none of the requested ones is playable."""
BACKENDS = ("in-process", "process", "tmux")


class Plan(Struct, frozen=True, kw_only=True):
    """Trouble, workload and backend that belong to one seed."""

    seed: int
    trouble: str
    work: str
    backend: str

    def __str__(self) -> str:
        where = f" ({self.backend})" if self.work != AGENTS.name else ""
        return f"{self.trouble} over {self.work}{where}"


def plans(
    seed: int,
    *,
    troubles: Sequence[str] = tuple(TROUBLES),
    works: Sequence[str] = tuple(WORKS),
    backends: Sequence[str] = BACKENDS,
) -> Iterator[Plan]:
    """Yield each combination in turn, starting at this seed; sub-agents run in the process of their lead."""
    while True:
        yield plan(seed, troubles=troubles, works=works, backends=backends)
        seed += 1


def plan(seed: int, *, troubles: Sequence[str], works: Sequence[str], backends: Sequence[str]) -> Plan:
    each = [
        (trouble, work, backend)
        for work, backend, trouble in product(works, backends, troubles)
        if TROUBLES[trouble].concerns(backend if work != AGENTS.name else "in-process")
        and (work != AGENTS.name or backend == backends[0])
    ]
    if not each:
        raise ValueError("There is nothing of that kind to play: only teammates in tmux have panes.")
    trouble, work, backend = each[seed % len(each)]
    return Plan(seed=seed, trouble=trouble, work=work, backend=backend)


def impossible(plan: Plan) -> str:
    """Return why this machine cannot play the plan, or an empty string."""
    if plan.backend == "tmux" and not shutil.which("tmux"):
        return "tmux is not installed"
    return TROUBLES[plan.trouble].impossible()


class Tally(Struct, frozen=True, kw_only=True):
    plan: Plan
    struck: int
    resumed: int
    seconds: float
    faults: tuple[str, ...]


class Round:
    """One run in its own home and project; the seed determines what happens to it."""

    def __init__(self, place: Path, plan: Plan, through: Leads, *, most: int) -> None:
        self._place = place.resolve() / str(plan.seed)
        self._plan = plan
        self._work: Work = WORKS[plan.work]
        self._shared = through
        self._most = most
        self._random = random.Random(plan.seed)
        self._session = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        self._faults: list[str] = []
        self._resumed = 0

    def run(self) -> Tally:
        since = time.monotonic()
        kind = TROUBLES[self._plan.trouble]
        asked = self._plan.backend != "in-process" or "provider" in self._plan.trouble or kind.settings
        provider = Provider(self._work.mind, random.Random(self._plan.seed)) if asked else None
        panes = None
        if self._plan.backend == "tmux" and self._work is not AGENTS:
            panes = Panes(self._place, beside=self._random.random() < 0.5)
        scene = Scene(
            place=self._place, rng=self._random, session=self._session, provider=provider, panes=panes
        )
        trouble = kind(scene)
        with ExitStack() as ends:
            ends.enter_context(trouble.around())
            if panes is not None:
                ends.enter_context(panes.around())
            if provider is not None:
                ends.enter_context(provider.listening())
            through = ends.enter_context(leads(trouble.env)) if trouble.env else self._shared
            for name in ("home", "tmp"):
                (self._place / name).mkdir()
            _make_project(self._place / "project")
            self._play(trouble, through)
            self._faults += [f"left behind: {path}" for path in (self._place / "tmp").glob("*-*")]
            self._faults += trouble.faults
            # Faults of the provider are complete when all is over.
            trouble.calm()
            struck = trouble.struck
        return Tally(
            plan=self._plan,
            struck=struck,
            resumed=self._resumed,
            seconds=time.monotonic() - since,
            faults=tuple(self._faults),
        )

    def _play(self, trouble: Trouble, through: Leads) -> None:
        *parts, last = self._work.parts
        done = all(self._until_done(part, trouble, through) for part in parts)
        if done and self._work.places is not None:
            self._faults += self._work.places(self._place, self._plan.backend)
        if done and self._work.removal is not None and self._random.random() < 0.25:
            self._clean_up(last, self._work.removal, trouble, through)
        elif done:
            self._until_done(last, trouble, through)
        self._ask_for("worktree", "reap")
        self._faults += trees.faults(self._place)

    def _clean_up(self, part: Part, removal: Removal, trouble: Trouble, through: Leads) -> None:
        """Kill the lead without resuming it, and let a person clean up after it."""
        lead = through.start(self._start(part.prompt, trouble, None))
        if through.ended(self._random.uniform(0, 2 * part.span)) is None:
            trouble.struck += 1
            send([lead], signal.SIGKILL)
            through.ended(10)
        self._look_what_is_left(trouble, through)
        if removal.is_there(self._place):
            self._ask_for(*removal.words)
        self._faults += removal.faults(self._place)

    def _ask_for(self, *words: str) -> None:
        if wrong := person.shoal(self._place, *words, seconds=30):
            self._faults.append(wrong)

    def _until_done(self, part: Part, trouble: Trouble, through: Leads) -> bool:
        strikes, tries = self._random.randint(1, min(self._most, trouble.most)), TRIES
        begun = part is not self._work.parts[0]
        while True:
            struck = strikes > 0
            status = self._one(part, trouble, through, part.again if begun else part.prompt, struck=struck)
            self._look_what_is_left(trouble, through)
            begun = begun or self._has_begun()
            if status == 0:
                wrong = part.faults(self._place, self._session)
                if not wrong or not trouble.may_fail or not tries:
                    self._faults += wrong
                    return not wrong
                # As a person would: ask again for what was given up because of the trouble.
                tries -= 1
            elif not struck or (status not in trouble.ends and not trouble.may_fail):
                self._faults.append(f"the lead ended with {status}: {self._log()}")
                return False
            strikes -= 1
            self._resumed += 1

    def _look_what_is_left(self, trouble: Trouble, through: Leads) -> None:
        self._faults += through.left_running(GONE, str(self._place / "home"))
        if trouble.scene.panes is not None:
            self._faults += trouble.scene.panes.left(GONE)

    def _one(self, part: Part, trouble: Trouble, through: Leads, prompt: str, *, struck: bool) -> int:
        """Return the exit status of a lead that is disturbed at some moments, or at none."""
        death = trouble.death(part) if struck else None
        lead = through.start(self._start(prompt, trouble, death))
        status = None
        if struck and death is None:
            acts = trouble.acts(part, lead, through)
            for pause, act in acts:
                status = through.ended(pause)
                if status is not None:
                    break
                act()
            acts.close()
            trouble.calm()
        elif death is not None:
            trouble.struck += 1
        status = through.ended(trouble.patience) if status is None else status
        if status is None:
            self._faults.append(f"the lead did not come to its end in {trouble.patience:g} s")
            # Prints the stacks into its log.
            send([lead], signal.SIGUSR1)
            through.ended(1)
            send([lead], signal.SIGKILL)
            status = through.ended(10)
        assert status is not None
        return status

    def _start(self, prompt: str, trouble: Trouble, death: object) -> Start:
        return Start(
            home=str(self._place / "home"),
            project=str(self._place / "project"),
            session=self._session,
            prompt=prompt,
            backend=self._plan.backend,
            provider="" if trouble.provider is None else trouble.provider.url,
            death=death,  # type: ignore[arg-type]
            log=str(self._log_path),
            work=self._plan.work,
            settings=dict(trouble.settings),
            environ={} if trouble.scene.panes is None else dict(trouble.scene.panes.env()),
            python=trouble.python,
        )

    def _has_begun(self) -> bool:
        return any((self._place / "home" / "projects").glob(f"*/{self._session}.jsonl"))

    @property
    def _log_path(self) -> Path:
        return self._place.with_suffix(".log")

    def _log(self) -> str:
        return self._log_path.read_text()[-2000:] if self._log_path.exists() else ""


def _make_project(project: Path) -> None:
    project.mkdir()
    (project / "code.txt").write_text("one\n")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)


def run(
    place: Path,
    planned: Iterator[Plan],
    say: Callable[[str], None],
    *,
    rounds: int,
    most: int = 4,
    seconds: float = float("inf"),
    keep: bool = False,
) -> list[Tally]:
    """Run a number of rounds until the time is up; a round can be repeated with its seed."""
    since, tallies = time.monotonic(), list[Tally]()
    told: set[str] = set()
    passed_over = 0
    with leads() as through:
        for plan in planned:
            late = time.monotonic() - since > seconds
            if len(tallies) >= rounds or late or passed_over > MOST_PASSED_OVER:
                break
            if why := impossible(plan):
                if str(plan) not in told:
                    say(f"{plan} is left out: {why}")
                told.add(str(plan))
                passed_over += 1
                continue
            passed_over = 0
            tally = Round(place, plan, through, most=most).run()
            tallies.append(tally)
            say(
                f"seed {plan.seed}: {plan}: struck {tally.struck} times, resumed {tally.resumed}, "
                f"{len(tally.faults)} faults ({tally.seconds:.1f} s)"
            )
            for fault in tally.faults[:20]:
                say(f"  {fault}")
            if not tally.faults and not keep:
                shutil.rmtree(place / str(plan.seed), ignore_errors=True)
    return tallies
