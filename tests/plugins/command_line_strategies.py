"""Random command lines: well-formed ones from a small grammar, and random bash's special characters."""

from __future__ import annotations

import re

from hypothesis import strategies as st


def _sample_pieces(text: str) -> st.SearchStrategy[str]:
    """Sample the pieces between the bars; ⏎ stands for a newline, ⇥ for a tab and ¦ for a bar."""
    signs = str.maketrans({"⏎": "\n", "⇥": "\t", "¦": "|"})
    return st.sampled_from(
        [piece.translate(signs) for line in text.strip("\n").split("\n") for piece in line.split("|")]
    )


_NAMES = _sample_pieces("aa|bb|cc|dd-x|ee_1")
_WORDS = _sample_pieces(
    r"""
a|-x|--y=z|'q r'|"s t"|\;|\ |$'t\n'|"$x"|${x}|$x|u#v|{a,b}|{}|a'b'"c"|=|x=1|*|[ab]|~|2|!|'#'|"`aa`"|$(aa b)
"$(bb "c d")"|`cc`|''|""|\\|'\'|"\""|%|@|^|a\⏎b|"a\⏎b"|if|then|}|do|[|]|"a $x b"|é|'⏎'|$((1 + 2))|<(aa)
"""
)
_GAPS = _sample_pieces(r" |  |⇥| \⏎| \⏎  ")
_ENDS = _sample_pieces(" ¦ | && | ¦¦ |; | & |⏎|¦|&&|;| ¦& | &&⏎| # note⏎|⏎⏎")
_REDIRECTIONS = _sample_pieces(
    """
|||| 2>&1| >/dev/null| 2>/dev/null| <<<x| <<< 'a b'|>/dev/null| >o1|>o2| 2>>o3| &>o4| >"o 5"| >& o6| <>o7
 1>o9 2>o10| >'p'"q"| >p\\ q
"""
)
_WRAPPERS = _sample_pieces(
    r"""
@|(@)|{ @; }|if @; then aa; fi|if aa; then @; else bb; fi|for x in 1 2; do @; done|! @|aa $(@)|aa "$(@)"
case x in y) aa;; x) @;; esac|case x in (x) @ ;; esac|aa `@`|@⏎| @ |⏎@|x=$(@)|eval '@'|(@⏎)|{⏎@⏎}|LANG=C @
aa <<'E'⏎$(bb)⏎E⏎@|aa <<E ¦ bb⏎x⏎E⏎@|aa <<-E⏎⇥x⏎⇥E⏎@|[ a = b ] ¦¦ @|[[ a == b ]] ¦¦ @|x=1; @|@ #'|time @
a=(x $(@) [2]=y)|a[1]=$(@)|a[$(@)]=1|let y=1; @|for ((i=0; i<2; i++)); do @; done|((1 < 2)) && @
(( y = $(@) + 1 ))|aa ${x:-$(@)}|aa "${y:=$(@)}"|declare y=$(@) z|export y=1; @|unset y; @|aa $((1 + $(@)))
aa <<E⏎a $(@) ${x} \$(bb)⏎E|aa <<E⏎a `@`⏎E|[[ 1 -eq $(@) ]]|case $(@) in "$x"*) aa;; esac
((@) ¦¦ (bb))|aa ${a[$(@)]}|aa ${x:$(@)}|local_1=1 y=$(@) aa|[[ a =~ ^b ]] ¦¦ @|until @; do aa; break; done
"""
)


@st.composite
def _simple_commands(draw: st.DrawFn) -> str:
    line = draw(_NAMES)
    for word in draw(st.lists(_WORDS, max_size=4)):
        line += draw(_GAPS) + word
    return line + draw(_REDIRECTIONS)


@st.composite
def _compound_commands(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    line = draw(inner)
    for other in draw(st.lists(inner, max_size=2)):
        line += draw(_ENDS) + other
    return draw(_WRAPPERS).replace("@", line, 1)


well_formed_commands = st.recursive(_simple_commands(), _compound_commands, max_leaves=5)

_SOUP = _sample_pieces(
    r"""
aa|bb|c|-x| | | |⇥|⏎|;|&&|¦¦|¦|&|'|"|\|$|`|$(|)|(|{ |}|#|!|! |<<aa|<<'c'|<<<|<|>|2>&1|>&|&>|=|x=|$x|${x}
${x:-b}
$'|*|?|[|]|[[ | ]]|[ | ]|~|,|if |then |fi|for x in |do |done|;;|case a in a) |esac|\⏎|$((|))|((|time |1|2
-|{a,b}
\'|\"|+=|!(|@(|⏎aa⏎|⏎c⏎|else |elif |select |coproc |a#b| #|\#|env |exec |eval |$"|é
"""
)
# A function that calls itself would never end.
shell_text_fragments = (
    st.lists(_SOUP, min_size=2, max_size=12).map("".join).filter(lambda text: not re.search(r"\(\s*\)", text))
)
