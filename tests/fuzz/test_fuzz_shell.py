"""A rule about one command lets no other one run, however the two are put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bash_trace import trace_commands
from command_line_strategies import shell_text_fragments, well_formed_commands

from .fuzz_inputs import altered_documents, limit_examples
from .fuzz_targets import TARGETS_BY_NAME
from .shell_targets import is_allowed

# `aa` is what the rule allows; wherever `zz` stands here, bash runs it.
WAYS = tuple(
    way.translate(str.maketrans({"⏎": "\n", "⇥": "\t"}))
    for line in r"""
aa; zz ¶ aa;zz ¶ aa && zz ¶ false || zz ¶ aa & zz ¶ aa | zz ¶ aa |& zz ¶ aa⏎zz ¶ aa # x⏎zz ¶ zz | aa
aa $(zz) ¶ aa "$(zz)" ¶ aa `zz` ¶ aa "`zz`" ¶ aa <(zz) ¶ aa > >(zz) ¶ aa x$(zz)y ¶ aa ${x:-$(zz)}
aa "${x:-`zz`}" ¶ aa $((1 + $(zz)1)) ¶ aa <<E⏎$(zz)⏎E ¶ aa <<E⏎`zz`⏎E⏎ ¶ aa <<-E⏎⇥$(zz)⏎⇥E ¶ aa <<< $(zz)
aa <<'E'⏎x⏎E⏎zz ¶ aa <<E; zz⏎E ¶ x=$(zz) aa ¶ x=`zz`; aa ¶ A=1 zz ¶ aa; A=1 B=2 zz x ¶ eval zz
eval 'aa; zz' ¶ eval aa ';' zz ¶ command zz ¶ builtin eval zz ¶ time zz ¶ ! zz ¶ { zz; } ¶ (zz)
( aa; zz ) ¶ if zz; then aa; fi ¶ if ! aa; then :; else zz; fi ¶ while zz; do aa; break; done
for x in $(zz); do aa; done ¶ for x in 1; do zz; done ¶ case $(zz) in x) aa;; esac
case x in x) zz;; esac ¶ until ! zz; do break; done ¶ f() { zz; }; f ¶ function f { zz; }; f
aa() { zz; }; aa ¶ f() ( zz ); aa; f ¶ trap zz EXIT; aa ¶ trap 'zz' EXIT ¶ [[ $(zz) ]] && aa
[ $(zz) = x ] || aa ¶ [[ -n `zz` ]] ¶ (( $(zz)1 )) ¶ let x=$(zz)1 ¶ aa {x,$(zz)} ¶ aa ~$(zz) ¶ aa >o$(zz)
aa 2>&1 | zz ¶ aa >/dev/null; zz ¶ aa <<<x && zz ¶ coproc zz; aa ¶ alias q=zz; zz ¶ aa \⏎; zz
aa 'x'"$(zz)" ¶ aa $'x'; zz ¶ aa "x\"$(zz)" ¶ aa \'; zz ¶ aa '\'; zz ¶ aa "a\\"; zz ¶ aa \\; zz
aa x#; zz ¶ aa #'⏎zz #' ¶ aa "⏎"; zz ¶ z''z ¶ 'zz' ¶ "zz" ¶ \zz ¶ z\z ¶ $'zz' ¶ z$empty'z' ¶ x=zz; $x
${x:-zz} ¶ aa || true; zz ¶ declare x=$(zz) ¶ export A=`zz` ¶ local x; zz ¶ readonly y=$(zz)
set -- $(zz) ¶ : $(zz); aa ¶ test $(zz) ¶ echo $(zz) ¶ echo `zz` ¶ cat <(zz) ¶ ls; zz ¶ true && zz
printf %s $(zz) ¶ cd / && zz ¶ cd $(zz)
""".strip("\n").split("\n")
    for way in line.split(" ¶ ")
)


@pytest.mark.needs("bash")
def test_bash_runs_the_hidden_command_in_every_script(tmp_path):
    ran = trace_commands(list(WAYS), tmp_path).commands
    assert [
        way for way, commands in zip(WAYS, ran, strict=True) if all(argv[0] != "zz" for argv in commands)
    ] == []


@pytest.mark.spec("PRM-05")
def test_a_rule_for_the_first_command_allows_none_of_the_scripts():
    assert is_allowed("aa x | aa && aa 'y z'")
    assert [way for way in WAYS if is_allowed(way)] == []


_PLACES = st.sampled_from(
    ["x", "-n", "--a=b", "'q'", '"$HOME"', "$x", "*", "\\;", "{a,b}", "2>&1", ">/dev/null", "é", "~"]
)


@st.composite
def _draw_script(draw: st.DrawFn) -> str:
    """Draw one of these scripts, with arguments for its commands, perhaps inside another."""
    way = draw(st.sampled_from(WAYS))
    if draw(st.booleans()) and "\n" not in way:
        around = draw(
            st.sampled_from(["aa; @", "@; aa", "aa && { @; }", "(@)", "aa\n@\naa", "if aa; then @\nfi"])
        )
        way = around.replace("@", way)
    words = " ".join(draw(st.lists(_PLACES, max_size=2)))
    return way.replace("aa", f"aa {words}", 1) if words and not way.startswith(("aa()", "aa #")) else way


@pytest.mark.spec("PRM-05")
@limit_examples(150)
@given(_draw_script())
def test_no_variant_of_a_script_is_allowed(command):
    assert not is_allowed(command)


@pytest.mark.spec("PRM-05")
@limit_examples(60)
@given(
    well_formed_commands
    | shell_text_fragments
    | altered_documents(tuple(way.encode() for way in WAYS)).map(lambda data: data.decode("utf-8", "replace"))
)
def test_every_generated_command_gets_a_decision_and_hides_no_other_command(command):
    TARGETS_BY_NAME["shell"].try_input(command.encode())
    TARGETS_BY_NAME["shell-escape"].try_input(command.encode())


@limit_examples(25)
@given(
    st.binary(max_size=80)
    | st.text(max_size=80).map(str.encode)
    | altered_documents(TARGETS_BY_NAME["shell"].seeds)
)
def test_any_bytes_get_a_decision_as_a_command(data):
    TARGETS_BY_NAME["shell"].try_input(data)
    TARGETS_BY_NAME["shell-escape"].try_input(data)
