"""A rule that forbids a command holds for other names, options and operands with the same effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from git_repository import run_git

CASES: list[tuple[str, list[str], list[str]]] = [
    (
        "npm publish:*",
        ["npm publ", "npm publi --access public", "npm --prefix web publis", "npm -w a pub"],
        ["npm pack", "npm run publish", "npm test", "npm view publish", "npm prune", "npm unpublish a"],
    ),
    (
        "npm install:*",
        ["npm i", "npm i left-pad", "npm in x", "npm add x", "npm isntall", "npm install-test",
         "npm it", "npm inst"],
        ["npm ci", "npm run install", "npm init", "npm info a", "npm uninstall a"],
    ),
    ("npm i:*", ["npm install x", "npm add x"], ["npm info a"]),
    ("npm uninstall:*", ["npm un x", "npm rm x", "npm r x", "npm unin x", "npm unlink x"], ["npm run a"]),
    ("npm run deploy:*", ["npm run-script deploy", "npm rum deploy", "npm run -s deploy"], ["npm run build"]),
    ("npm run test:*", ["npm test", "npm t", "npm tst", "npm runScript test"], ["npm run build"]),
    ("npm exec:*", ["npx cowsay", "npm x cowsay"], ["npm ls"]),
    ("npx:*", ["npm exec cowsay", "npm x -- cowsay"], ["npm ls"]),
    ("npm install -g:*", ["npm i -g x", "npm i --global x", "npm i --location=global x"], ["npm i a"]),
    (
        "git push --force:*",
        ["git push origin +main", "git push -f", "git push --force-with-lease", "git push --mirror x",
         "git -C . push o +HEAD:main", "git push --forc"],
        ["git push", "git push origin main", "git push --follow-tags", "git push -u origin x"],
    ),
    (
        "git push --delete:*",
        ["git push origin :main", "git push -d origin main",
         "git push --prune origin", "git push --mirror o"],
        ["git push origin main:main", "git push origin main"],
    ),
    (
        "git push origin main:*",
        ["git push origin HEAD:main", "git push", "git push origin", "git push origin +main",
         "git push origin refs/heads/main", "git push origin HEAD", "git push --all origin",
         "git push https://example.com/r main", "git push -u origin main", "git push origin x:main"],
        ["git push origin topic", "git push fork main", "git push origin main:topic"],
    ),
    (
        "git branch -D:*",
        ["git branch -d -f x", "git branch -df x", "git branch --delete --force x", "git branch x -D",
         "git update-ref -d refs/heads/x", "git branch -qD x"],
        ["git branch -d x", "git branch x", "git branch -f x HEAD", "git branch"],
    ),
    (
        "git reset --hard:*",
        ["git reset HEAD~1 --hard", "git reset --har", "git checkout -f", "git checkout -- .",
         "git restore .", "git switch --discard-changes x", "git read-tree --reset -u HEAD"],
        ["git reset --soft HEAD~1", "git reset x", "git checkout main", "git restore a.py", "git switch x"],
    ),
    (
        "git commit --no-verify:*",
        ["git commit -n -m x", "git commit -anm x", "git -c core.hooksPath=/dev/null commit -m x",
         "HUSKY=0 git commit -m x", "git commit --no-verif"],
        ["git commit -m x", "git commit -am x"],
    ),
    ("git commit --amend:*", ["git commit -m x --amend", "git commit --amen"], ["git commit -am x"]),
    ("*--no-verify*", ["git commit -n -m x", "git push --no-verify"], ["git commit -m x"]),
    ("git add:*", ["git stage x"], ["git status"]),
    ("git clean -f:*", ["git clean -xdf", "git clean --force", "git clean -d -f"], ["git clean -n"]),
    (
        "chmod 777:*",
        ["chmod 0777 x", "chmod a+rwx x", "chmod ugo+rwx x", "chmod a=rwx x", "chmod -R 777 x",
         "chmod 1777 x", "chmod +rwx x", "chmod go+w x", "chmod u+rwx,g+rwx,o+rwx x", "chmod 00777 x"],
        ["chmod +x x", "chmod 755 x", "chmod u+w x", "chmod 644 x", "chmod go-w x", "chmod 600 x"],
    ),
    ("chmod +x:*", ["chmod 755 x", "chmod a+x x", "chmod 777 x"], ["chmod 644 x", "chmod -x x"]),
    (
        "terraform destroy:*",
        ["terraform apply -destroy", "terraform apply --destroy", "terraform -chdir=x destroy",
         "terraform apply -auto-approve -destroy", "TF_CLI_ARGS_apply=-destroy terraform apply",
         "export TF_CLI_ARGS=-destroy; terraform apply"],
        ["terraform apply", "terraform plan", "terraform fmt"],
    ),
    ("terraform apply -auto-approve:*", ["terraform apply --auto-approve"], ["terraform apply"]),
    ("terraform apply -destroy:*", ["terraform destroy", "terraform apply --destroy"], ["terraform apply"]),
    (
        "docker rm:*",
        ["docker container rm x", "docker container remove x", "docker -H h container rm x"],
        ["docker ps", "docker image ls"],
    ),
    ("docker rmi:*", ["docker image rm x", "docker image remove x"], ["docker images", "docker rm x"]),
    ("docker run:*", ["docker container run x", "docker create x"], ["docker ps", "docker logs run"]),
    ("docker compose down:*", ["docker-compose down", "docker compose -f a.yml down"], ["docker compose up"]),
    (
        "kubectl delete pod:*",
        ["kubectl delete po x", "kubectl delete pods x", "kubectl delete pod/x",
         "kubectl -n a delete pods --all", "kubectl delete pods,services x", "kubectl replace --force pod"],
        ["kubectl get pods", "kubectl delete service x", "kubectl describe pod x"],
    ),
    ("kubectl get secrets:*", ["kubectl get secret x", "kubectl get secret/x"], ["kubectl get pods"]),
    ("cargo build:*", ["cargo b", "cargo b --release"], ["cargo check", "cargo bench"]),
    ("cargo publish:*", ["cargo release", "cargo +nightly publish", "cargo p"], ["cargo package", "cargo t"]),
    ("gh pr merge:*", ["gh api -X PUT repos/o/r/pulls/1/merge", "gh land 1"], ["gh api repos/o/r"]),
    ("gh issue create:*", ["gh issue new"], ["gh issue list"]),
    ("pip install:*", ["uv pip install x", "pip3 install x"], ["uv pip list", "pip download x", "uv sync"]),
    ("uv pip install:*", ["pip install x"], ["pip list"]),
    ("helm uninstall:*", ["helm delete x", "helm del x", "helm un x"], ["helm list"]),
    ("helm install:*", ["helm upgrade --install a b", "helm upgrade -i a b"], ["helm upgrade a b"]),
    ("make deploy:*", ["make all deploy", "make -j4 build deploy", "gmake deploy"], ["make all"]),
    ("mvn deploy:*", ["mvn clean deploy", "./mvnw deploy", "mvn deploy:deploy"], ["mvn clean test"]),
    ("gradle publish:*", ["./gradlew publish", "gradle :app:publish", "gradle build pub"], ["gradle build"]),
    ("kill -9:*", ["kill -KILL 1", "kill -s KILL 1", "kill -SIGKILL 1", "kill -s 9 1"], ["kill 1"]),
    ("rm -rf:*", ["rm --r --f x", "rm -Rf x", "rm -r --interactive=never x"], ["rm x", "rm -r x"]),
    ("php artisan migrate:fresh*", ["php artisan migr:fr"], ["php artisan migrate"]),
    ("svn commit:*", ["svn ci -m x"], ["svn status"]),
    ("ip link delete:*", ["ip l d eth0", "ip link del eth0"], ["ip l"]),
    ("curl -X POST:*", ["curl -d a=b u", "curl --request POST u", "curl -XPOST u"], ["curl u"]),
    ("terraform destroy:*", ["terraform plan -destroy -out=p", "tofu destroy"], ["terraform plan -out=p"]),
    ("docker rm:*", ["docker container prune", "docker compose rm"], ["docker compose up"]),
    ("kubectl delete:*", ["oc delete pod x", "kubectl create --raw /x -f y"], ["oc get pods"]),
    ("git push:*", ["git svn dcommit", "git p4 submit", "hub push", "git.exe push"],
     ["git lfs push o main", "git svn info"]),
    ("git push --force:*", ["git -c remote.o.push=+main push", "git config remote.o.push +main; git push"],
     ["git config remote.origin.push main", "git push"]),
    ("git reset --hard:*", ["git restore '*'", "git checkout -- '*'", "git checkout :/"], ["git restore a"]),
    ("chmod 777:*", ["chmod o=u,g=u x", "chmod --reference=y x"], ["chmod g=o x"]),
    ("gh pr merge:*", ["gh extension exec merge"], ["gh extension list"]),
    ("pip install:*", ["python3 -c 'from pip._internal import main; main()'"], ["python3 -c 'print(1)'"]),
    ("docker:*", ["docker-compose up", "docker.exe ps"], ["podman ps"]),
    ("wget:*", ["wget2 x", "wget.exe x"], ["curl x"]),
    ("git rebase:*", ["git pull --rebase", "git pull -r", "git -c pull.rebase=true pull"], ["git pull"]),
    ("git merge:*", ["git pull"], ["git fetch"]),
    ("git commit:*", ["git citool", "git gui citool"], ["git status", "git cherry-pick x"]),
    ("npm publish:*", ["node $(which npm) publish"], ["node x.js"]),
    ("npm publish", ["npm publ", "npm publis"], ["npm publish --access public", "npm pack"]),
    ("rm -rf build", ["rm -fr build", "rm build -rf"], ["rm -rf build2", "rm -rf other"]),
]  # fmt: skip


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize(("rule", "forbidden", "harmless"), CASES, ids=[case[0] for case in CASES])
def test_a_command_with_the_effect_of_a_forbidden_one_is_not_allowed(
    tmp_path: Path, kind: str, rule: str, forbidden: list[str], harmless: list[str]
) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", **{kind: f"Bash({rule})"})
    assert [command for command in forbidden if decide_command(engine, command) == "allow"] == []
    assert [command for command in harmless if decide_command(engine, command) != "allow"] == []


def test_a_repository_that_forces_every_push_is_known(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q")
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(git push --force:*)")
    assert decide_command(engine, "git push") == "allow"
    run_git(tmp_path, "config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
    assert decide_command(engine, "git push") != "allow"


def test_a_session_that_does_not_ask_denies_an_equivalent_command(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "dontAsk", allow="Bash(npm:*)", deny="Bash(npm publish:*)")
    assert decide_command(engine, "npm publ") == "deny"
    assert decide_command(engine, "npm pack") == "allow"
