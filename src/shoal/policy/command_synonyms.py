"""Facts about well-known programs: other names of their subcommands, and options with the same effect."""

from __future__ import annotations

from msgspec import Struct


def _parse_names(table: str) -> dict[str, tuple[str, ...]]:
    """Parse lines such as `install = i add`, which give other names of a subcommand."""
    names: dict[str, tuple[str, ...]] = {}
    for line in table.strip().splitlines():
        standard, _, others = line.partition("=")
        names.update((other, tuple(standard.split())) for other in others.split())
    return names


_NPM_NAMES = _parse_names(
    """
    install = i in ins inst insta instal isnt isnta isntal isntall add
    uninstall = un unlink remove rm r
    ci = clean-install ic install-clean isntall-clean
    run = run-script rum urn
    run test = test tst t
    run start = start
    run stop = stop
    run restart = restart
    install-ci-test = clean-install-test cit sit
    install-test = it
    exec = x
    update = u up upgrade udpate
    view = v info show
    ls = list
    ll = la
    link = ln
    init = create innit
    config = c
    search = s se find
    dedupe = ddp
    version = verison
    dist-tag = dist-tags
    owner = author
    org = ogr
    adduser = add-user login
    explain = why
    docs = home
    bugs = issues
    rebuild = rb
    help = hlep
    config set = set
    config get = get
    """
)
SUBCOMMAND_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "npm": _NPM_NAMES,
    "pnpm": _parse_names(
        """
        install = i add
        remove = rm un uninstall uni
        update = up upgrade
        run = run-script
        run test = test t tst
        run start = start
        exec = x
        list = ls la ll
        rebuild = rb
        link = ln
        """
    ),
    "yarn": _parse_names("run test = test\nrun start = start\ninstall = add\n"),
    "bun": _parse_names("install = i add a\nremove = rm\nrun = r\n"),
    "git": _parse_names(
        "add = stage\ninit = init-db\nblame = annotate pickaxe\nfsck = fsck-objects\ncommit = citool\n"
        "rebase = rebase--interactive\n"
    ),
    "cargo": _parse_names("build = b\ncheck = c\ndoc = d\nrun = r\ntest = t\nremove = rm\n"),
    "svn": _parse_names(
        """
        commit = ci
        checkout = co
        delete = del remove rm
        copy = cp
        move = mv rename ren
        switch = sw
        update = up
        propset = pset ps
        propdel = pdel pd
        propedit = pedit pe
        export = ex
        import = im
        """
    ),
    "hg": _parse_names(
        "commit = ci\nupdate = up checkout co\nremove = rm\nrename = mv move\ncopy = cp\nstatus = st\n"
    ),
    "brew": _parse_names("uninstall = remove rm\nlist = ls\ninstall = instal\nupgrade = up\n"),
    "apt": _parse_names("remove = purge autoremove autopurge\nfull-upgrade = dist-upgrade\n"),
    "dnf": _parse_names("remove = erase rm\nupgrade = update up\ninstall = in localinstall\n"),
    "apk": _parse_names("del = remove\n"),
    "conda": _parse_names("remove = uninstall\nupdate = upgrade\n"),
    "composer": _parse_names("require = r\nupdate = u upgrade\nremove = rm uninstall\ninstall = i\n"),
    "gem": _parse_names("install = i\n"),
    "helm": _parse_names(
        "uninstall = delete del un\nlist = ls\nhistory = hist\ndependency = dep dependencies\n"
    ),
    "rake": _parse_names("destroy = d\ngenerate = g\nrunner = r\nconsole = c\nserver = s\ntest = t\n"),
    "terraform": _parse_names("workspace = env\napply = apply-all\ndestroy = destroy-all\nplan = plan-all\n"),
    "wrangler": _parse_names("deploy = publish\n"),
    "gh": _parse_names("codespace = cs\nextension = ext exts extensions\nattestation = at\nruleset = rs\n"),
    "rustup": _parse_names("toolchain uninstall = uninstall\ntoolchain install = install\n"),
}
"""Other names of the first subcommand, by program."""
INNER_NAMES: dict[str, dict[str, str]] = {
    "gh": {"ls": "list", "new": "create", "co": "checkout", "remove": "delete", "rm": "delete"},
    "glab": {"ls": "list", "new": "create", "co": "checkout", "rm": "delete", "del": "delete"},
    "docker": {"remove": "rm", "list": "ls", "delete": "rm"},
    "podman": {"remove": "rm", "list": "ls", "delete": "rm"},
    "git": {"remove": "rm"},
    "kubectl": {
        short: name
        for name, shorts in {
            "pod": "po pods", "service": "svc services", "deployment": "deploy deployments deployment.apps",
            "namespace": "ns namespaces", "node": "no nodes", "configmap": "cm configmaps",
            "secret": "secrets", "ingress": "ing ingresses", "persistentvolumeclaim": "pvc",
            "persistentvolume": "pv", "statefulset": "sts statefulsets", "daemonset": "ds daemonsets",
            "replicaset": "rs replicasets", "job": "jobs", "cronjob": "cj cronjobs",
            "serviceaccount": "sa serviceaccounts", "customresourcedefinition": "crd crds",
            "clusterrolebinding": "clusterrolebindings", "clusterrole": "clusterroles", "role": "roles",
        }.items()
        for short in shorts.split()
    },
}  # fmt: skip
"""Other names of the word after the first subcommand, by program."""
GROUPS: dict[str, dict[str, dict[str, str]]] = {
    name: {"container": {"ls": "ps"}, "image": {"rm": "rmi", "ls": "images"}}
    for name in ("docker", "podman", "nerdctl")
}
"""Groups of subcommands that can be left out, by program, with the names that differ without the group."""
ABBREVIATING_PROGRAMS: dict[str, frozenset[str]] = {
    "npm": frozenset(
        """
        access adduser approve-scripts audit bugs cache ci completion config dedupe deny-scripts deprecate
        diff dist-tag docs doctor edit exec explain explore find-dupes fund get help help-search init install
        install-ci-test install-scripts install-test link ll login logout ls org outdated owner pack ping pkg
        prefix profile prune publish query rebuild repo restart root run sbom search set shrinkwrap stage star
        stars start stop team test token trust undeprecate uninstall unpublish unstar update version view
        whoami
        """.split()  # noqa: SIM905 - easier to read and extend as one text
    )
    | frozenset(_NPM_NAMES),
    **dict.fromkeys(
        ("ip", "tc", "bridge", "nmcli", "hg", "gradle", "composer", "php", "symfony", "console"), frozenset()
    ),
}
"""Programs that accept the beginning of a subcommand, with the names that are complete as they are."""
TARGET_PROGRAMS = frozenset("make ninja rake ant gradle mvn invoke just task nox doit scons".split())  # noqa: SIM905
"""Programs whose operands are targets that run one after the other."""
KNOWN_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "cargo": frozenset(
        """
        add bench build check clean clippy config doc fetch fix fmt generate-lockfile help info init install
        locate-project login logout metadata miri new owner package pkgid publish read-manifest remove report
        run rustc rustdoc search test tree uninstall update vendor verify-project version yank nextest audit
        deny watch expand llvm-cov tarpaulin outdated machete udeps bloat hack insta criterion flamegraph
        """.split()  # noqa: SIM905 - easier to read and extend as one text
    ),
    "gh": frozenset(
        """
        alias api attestation auth browse cache codespace completion config extension gist gpg-key help issue
        label org pr preview project release repo ruleset run search secret ssh-key status variable version
        workflow agent-task copilot
        """.split()  # noqa: SIM905 - easier to read and extend as one text
    ),
}
"""Subcommands of programs for which users define others; an unknown one may stand for any command."""
LEADING_WORDS: dict[str, dict[str, int]] = {
    "terraform": {"run-all": 0, "run": 0, "stack": 0},
    "yarn": {"workspace": 1, "workspaces": 0, "foreach": 0, "global": 0},
    "pnpm": {"recursive": 0, "multi": 0, "m": 0},
    "composer": {"global": 0},
}
"""Words before a subcommand that say where it runs, with the number of words that belong to each."""
UNIVERSAL_SUBCOMMANDS: dict[str, dict[str, str]] = {
    "gh": {
        "api": r"graphql|-[XfF].*|--(?:method|field|raw-field|input|form).*",
        "extension": "exec|install|create",
    },
    "glab": {"api": r"graphql|-[XfF].*|--(?:method|field|raw-field|input|form).*"},
    "az": {"rest": r"--(?:method|body|m|b).*|-m.*|-b.*"},
    "kubectl": {"proxy": ".*", **dict.fromkeys(("create", "delete", "replace"), r"--raw.*")},
    "npm": {"exec": r"-c.*|--call.*", "explore": "--"},
}
"""Subcommands that can do what any other one does, if a word matches."""


class CommandEffect(Struct, frozen=True):
    """Other commands that a command amounts to under some flags or with some operand.

    `flags` are all needed; of each group in it, one is enough. A flag of one letter stands without its dash.
    """

    means: tuple[str, ...]
    flags: tuple[frozenset[str], ...] = ()
    word: str | None = None
    """Expression for a word of the command, compiled when it is used."""


def _make_effect(means: str, *flags: str, word: str | None = None) -> CommandEffect:
    return CommandEffect(
        tuple(means.split(" | ")),
        tuple(frozenset(group.split()) for group in flags),
        word,
    )


_KILL = (_make_effect("kill -9", word=r"-?(?:SIG)?KILL|--signal=(?:SIG)?(?:KILL|9)|-?9"),)
_DISCARD = "git reset --hard | git checkout -f | git checkout . | git restore ."
EFFECTS: dict[tuple[str, str], tuple[CommandEffect, ...]] = {
    ("git", "push"): (
        _make_effect("git push --no-verify", word=r"(?:-c)?core\.hookspath=.*"),
        _make_effect("git push --force", word=r"\+.*|.*\.push=\+.*|.*\.mirror=.*"),
        _make_effect("git push --delete", word=r"\+?:.+"),
        _make_effect("git push --force --delete --all --tags", "--mirror"),
        _make_effect("git push --delete", "--prune"),
        _make_effect("git push --tags", word=r".*refs/tags/.*"),
        _make_effect("git push --tags", "--follow-tags"),
    ),
    ("git", "branch"): (
        _make_effect("git branch -D", "d --delete", "f --force"),
        _make_effect("git branch -d -f", "D"),
        _make_effect("git branch -M", "m --move", "f --force"),
        _make_effect("git branch -m -f", "M"),
        _make_effect("git branch -C", "c --copy", "f --force"),
        _make_effect("git branch -c -f", "C"),
    ),
    ("git", "pull"): (
        _make_effect("git rebase", "r --rebase"),
        _make_effect("git rebase", word=r"(?:-c)?pull\.rebase=.*"),
        _make_effect("git merge | git fetch"),
    ),
    ("git", "gui"): (_make_effect("git commit", word="citool"),),
    ("git", "update-ref"): (
        _make_effect("git branch -D | git tag -d | git branch -d", "d --delete --stdin"),
        _make_effect("git branch -f | git tag -f | git reset"),
    ),
    ("git", "checkout"): (
        _make_effect(_DISCARD, "f --force"),
        _make_effect(_DISCARD, word=r"\./?|:/?|:\(.*|\*.*"),
        _make_effect("git branch -f", "B"),
    ),
    ("git", "switch"): (
        _make_effect(_DISCARD, "f --force --discard-changes"),
        _make_effect("git branch -f", "C --force-create"),
    ),
    ("git", "restore"): (_make_effect(_DISCARD, word=r"\./?|:/?|:\(.*|\*.*"),),
    ("git", "reset"): (_make_effect(_DISCARD, "--hard --merge --keep"),),
    ("git", "read-tree"): (_make_effect(_DISCARD, "u --reset"),),
    ("git", "checkout-index"): (_make_effect(_DISCARD, "f --force"),),
    **{
        ("git", name): (
            _make_effect(f"git {name} --no-verify", word=r"(?:-c)?core\.hookspath=.*"),
            *((_make_effect("git commit --no-verify", "n"),) if name == "commit" else ()),
        )
        for name in ("commit", "merge", "rebase", "am")
    },
    ("git", "svn"): (
        _make_effect("git push", word="dcommit|branch|tag"),
        _make_effect("git pull", word="rebase"),
    ),
    ("git", "annex"): (
        _make_effect("git push | git pull", word="sync|assist|push|pull|satisfy"),
        _make_effect("git push", word="copy|move|export|transferkey"),
    ),
    ("git", "subrepo"): (_make_effect("git push", word="push"), _make_effect("git pull", word="pull|clone")),
    ("git", "flow"): (_make_effect("git push", word="publish|push|finish|delete"),),
    ("git", "branchless"): (_make_effect("git push", word="submit"),),
    **{("git", name): (_make_effect("git push | git pull"),) for name in ("town", "machete")},
    **{
        ("git", name): (_make_effect("git push"),)
        for name in ("review", "publish", "release", "delete-branch")
    },
    ("git", "p4"): (_make_effect("git push", word="submit"), _make_effect("git pull", word="rebase|sync")),
    **{
        ("git", f"remote-{name}"): (_make_effect("git push | git fetch"),)
        for name in ("http", "https", "ext", "fd")
    },
    ("git", "reflog"): (_make_effect("git stash drop", word="delete"),),
    ("npm", "install-test"): (_make_effect("npm install | npm run test"),),
    ("npm", "install-ci-test"): (_make_effect("npm ci | npm run test"),),
    ("npm", "install"): (_make_effect("npm install -g", word=r"--location=global|global"),),
    ("terraform", "apply"): (_make_effect("terraform destroy", "--destroy"),),
    ("terraform", "destroy"): (_make_effect("terraform apply -destroy"),),
    ("terraform", "plan"): (_make_effect("terraform destroy", "--destroy", "--out"),),
    ("helm", "upgrade"): (_make_effect("helm install", "i --install"),),
    ("kubectl", "replace"): (_make_effect("kubectl delete | kubectl create", "--force"),),
    ("kubectl", "apply"): (_make_effect("kubectl delete", "--prune"),),
    ("docker", "create"): (_make_effect("docker run"),),
    ("docker", "prune"): (_make_effect("docker rm | docker rmi"),),
    ("docker", "system"): (_make_effect("docker rm | docker rmi", word="prune"),),
    ("docker", "compose"): (_make_effect("docker rm", word="rm|down"),),
    ("vercel", ""): (_make_effect("vercel deploy"),),
    ("yarn", ""): (_make_effect("yarn install"),),
    **{(name, ""): _KILL for name in ("kill", "pkill", "killall", "skill")},
    ("rm", ""): (_make_effect("rm -f", word=r"--interactive=(?:never|no|none)"),),
    ("curl", ""): (
        _make_effect("curl -X POST", "d F --data --data-raw --data-binary --data-urlencode --json --form"),
        _make_effect("curl -X PUT", "T --upload-file"),
    ),
}
"""Commands that amount to others, by program and subcommand; an empty subcommand is the program itself."""

SAME_FLAGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "rm": (("r", "R", "--recursive"), ("f", "--force")),
    "chmod": (("R", "--recursive"),),
    "chown": (("R", "--recursive"),),
    "cp": (("r", "R", "a", "--recursive", "--archive"), ("f", "--force")),
    "mv": (("f", "--force"),),
    "push": (
        ("f", "--force", "--force-with-lease", "--mirror"),
        ("d", "--delete"),
        ("u", "--set-upstream"),
        ("--all", "--branches", "--mirror"),
    ),
    "commit": (("n", "--no-verify"), ("a", "--all")),
    "branch": (("f", "--force"), ("d", "--delete"), ("m", "--move"), ("c", "--copy")),
    "tag": (("f", "--force"), ("d", "--delete")),
    "checkout": (("f", "--force"),),
    "switch": (("f", "--force", "--discard-changes"), ("c", "--create"), ("C", "--force-create")),
    "clean": (("f", "--force"),),
    "config": (("--global", "f", "--file"),),
    "add": (("f", "--force"), ("A", "--all")),
    "fetch": (("p", "--prune"), ("f", "--force")),
    "pull": (("r", "--rebase"), ("f", "--force")),
    "rebase": (("i", "--interactive"),),
    "stash": (("u", "--include-untracked"), ("a", "--all")),
    "worktree": (("f", "--force"),),
    "npm": (("f", "--force"), ("g", "--global"), ("D", "--save-dev")),
    "pip": (("U", "--upgrade"), ("t", "--target"), ("e", "--editable"), ("r", "--requirement")),
    "docker": (("f", "--force"), ("a", "--all"), ("v", "--volume", "--volumes", "--mount")),
    "podman": (("f", "--force"), ("a", "--all"), ("v", "--volume", "--volumes", "--mount")),
    "kubectl": (
        *(("n", "--namespace"), ("f", "--filename", "k", "--kustomize")),
        *(("A", "--all-namespaces"), ("l", "--selector")),
    ),
    "curl": (
        ("X", "--request"),
        ("d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--data-ascii", "--json"),
        *(("o", "O", "--output", "--remote-name"), ("k", "--insecure"), ("T", "--upload-file")),
        *(("F", "--form", "--form-string"), ("H", "--header"), ("u", "--user")),
    ),
    "wget": (("O", "--output-document"), ("--post-data", "--post-file", "--body-data", "--body-file")),
    "tar": (("x", "--extract", "--get"), ("c", "--create"), ("P", "--absolute-names")),
    "apt": (("y", "--yes", "--assume-yes", "--force-yes"),),
    "dnf": (("y", "--assumeyes"),),
    "sed": (("i", "--in-place"),),
    "rsync": (
        ("--delete", "--del", "--delete-before", "--delete-during", "--delete-after", "--delete-excluded"),
    ),
    "make": (("f", "--file", "--makefile"), ("C", "--directory"), ("B", "--always-make")),
    "node": (("e", "--eval", "p", "--print"), ("r", "--require", "--import")),
    "perl": (("e", "E"), ("i",)),
    "psql": (("c", "--command"), ("f", "--file")),
    "mysql": (("e", "--execute"),),
    "gh": (("f", "--force"), ("y", "--yes")),
    "helm": (("i", "--install"),),
    "useradd": (("G", "--groups"),),
}
"""Flags with the same effect, by the program or subcommand that has them."""

ARGUMENT_VARIABLES: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (rf"\b(?:{names})\+?=", frozenset(programs.split()))
    for names, programs in (
        (r"TF_CLI_ARGS\w*|TF_CLI_CONFIG_FILE", "terraform tofu"),
        ("GOFLAGS", "go"),
        ("PYTEST_ADDOPTS", "pytest python"),
        ("MAKEFLAGS|GNUMAKEFLAGS|MFLAGS", "make"),
        ("MAVEN_ARGS", "mvn"),
        ("TAR_OPTIONS", "tar"),
        (r"(?i:npm_config_)\w+", "npm pnpm yarn"),
        (r"PIP_[A-Z_]+", "pip python"),
        (r"UV_[A-Z_]+", "uv"),
        (r"CARGO_(?:ALIAS|REGISTRIES|REGISTRY)_\w+", "cargo"),
        (r"DOCKER_[A-Z_]+|COMPOSE_[A-Z_]+", "docker"),
        ("KUBECONFIG", "kubectl helm"),
        (r"HELM_\w+", "helm"),
        ("GH_HOST|GH_REPO|GH_CONFIG_DIR", "gh"),
        ("CURL_HOME", "curl"),
        ("WGETRC", "wget"),
        (r"GIT_CONFIG\w*|GIT_DIR|GIT_WORK_TREE|GIT_EXEC_PATH", "git"),
    )
)
"""Variables from which programs take further arguments or settings."""
HOOK_VARIABLES = r"\b(?:HUSKY|HUSKY_SKIP_HOOKS|LEFTHOOK|SKIP|PRE_COMMIT_ALLOW_NO_CONFIG)="
"""Variables with which git skips hooks, as with `--no-verify`."""
