"""Redaction of secrets: the values of secret variables, and texts shaped like keys and tokens.

Every store of a run uses it for every line, so it does not search with regular expressions: a key contains a
long run of letters and digits, which is rare in other text, and only such runs are inspected closely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_MIN_RUN = 13
"""Letters and digits in a row that trigger a closer inspection; one more than any part of a UUID has."""
_MIN_VALUE_LENGTH = 8
"""Minimum length of a value that is redacted; shorter ones occur by chance."""
_HEAD = 8
"""Leading characters that count as the whole value if the text is cut right after them."""
_MAX_LOOKBACK = 64
_MAX_KEY_BLOCK = 64 * 1024

_SECRET_WORDS = frozenset(
    (
        "KEY",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
    )
)
# Prefixes of keys and the pattern that follows in a real one. The prefix is not redacted: it tells what was
# there. Patterns are compiled on first use: most runs need none.
_KEY_SHAPES: Final = {
    mark: tail
    for marks, tail in (
        ((b"sk-",), rb"[A-Za-z0-9_\-]{20,}"),
        (
            (b"sk_live_", b"rk_live_", b"sk_test_", b"rk_test_", b"whsec_", b"glpat-", b"glrt-", b"gldt-"),
            rb"[A-Za-z0-9_\-]{16,}",
        ),
        (
            b"glsa_ glptt- glft- glcbt- glimt- glsoat- glagent- shpat_ shpca_ shpss_ shppa_ dop_v1_ doo_v1_"
            b" dor_v1_ xapp- dckr_pat_ sntrys_ sntryu_ lin_api_ pscale_tkn_ pscale_pw_ PMAK- NRAK- tskey-"
            b" CCIPAT_ CFPAT- HRKU- ATATT3x GOCSPX- AGE-SECRET-KEY-1 sq0atp- sq0csp- shippo_live_".split(),
            rb"[A-Za-z0-9_\-=]{16,}",
        ),
        # These may begin ordinary names, so nothing but letters and digits may follow.
        (
            b"glc_ rubygems_ sbp_ sqp_ squ_ sqa_ ntn_ nfp_ r8_ gsk_ xai- pplx- fw_ bkua_ pnu_ pul- ATBB LTAI"
            b" AKID GR1348941 waka_".split(),
            rb"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9_\-])",
        ),
        ((b"figd_", b"tfp_"), rb"[A-Za-z0-9_\-]{36,}"),
        ((b"dapi",), rb"[0-9a-f]{32}"),
        ((b"ops_eyJ",), rb"[A-Za-z0-9_\-]{40,}"),
        ((b"ghp_", b"gho_", b"ghs_", b"ghu_", b"ghr_", b"npm_", b"hf_"), rb"[A-Za-z0-9]{30,}"),
        ((b"github_pat_",), rb"[A-Za-z0-9_]{30,}"),
        (
            (b"xoxb-", b"xoxp-", b"xoxa-", b"xoxs-", b"xoxe-", b"xoxc-", b"xoxd-", b"xoxr-"),
            rb"[A-Za-z0-9\-%]{10,}",
        ),
        ((b"pypi-",), rb"[A-Za-z0-9_\-]{40,}"),
        ((b"AKIA", b"ASIA"), rb"[A-Z0-9]{16}(?![A-Z0-9])"),
        ((b"AIza",), rb"[A-Za-z0-9_\-]{35}"),
        ((b"eyJ",), rb"[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}(?:\.[A-Za-z0-9_\-]*)?"),
    )
    for mark in marks
}
_DOTTED_MARKS = (b"hvs.", b"hvb.", b"hvr.", b"SG.", b"ya29.", b".pt.", b".st.", b".ct.", b".sa.", b"atlasv1.")
"""Ends of prefixes that a dot separates from the key."""
_DOTTED_KEY = rb"[A-Za-z0-9_\-]{13,}(?:\.[A-Za-z0-9_\-]{8,})*"
_BOT_TOKEN = (
    rb"(?:[A-Za-z0-9_\-]{23,28}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,}|AA[A-Za-z0-9_\-]{33}(?![A-Za-z0-9]))"
)
_URL_PASSWORD = rb"://[^/\s:@\"'<>]{0,64}:([^/\s@\"'<>\\$\[]{3,256})@"
_KEY_BEGINNINGS = frozenset(mark[:2] for mark in _KEY_SHAPES)
_BEARER, _BEARER_TOKEN = b"earer ", rb"[A-Za-z0-9_\-.~+/=]{12,}"
_BEGIN, _END, _PRIVATE = b"-----BEGIN ", b"-----END ", b"PRIVATE KEY"
# In JSON the lines of a block are separated by a backslash and an n.
_BREAK = rb"(?:\s|\\[nrt])*"
_BLOCK = rb"-*" + _BREAK + rb"(?:(?:[A-Za-z0-9+/=]{8,}|(?:Proc-Type|DEK-Info)[^\\\n]*)" + _BREAK + rb")*"


def _build_character_class_table(extra: bytes) -> bytes:
    return bytes(97 if chr(code).isalnum() or code in extra else 32 for code in range(128)) + b" " * 128


_ALPHANUMERIC, _WORD = _build_character_class_table(b""), _build_character_class_table(b"_-")
_LONG_RUN = b"a" * _MIN_RUN
_BACKSLASH = b"\\"[0]
_BEFORE_KEY = frozenset(b" .:")
"""Characters before a key that has no known prefix: after `Bearer`, `hvs.` and the number of a bot."""


def is_secret_variable_name(name: str) -> bool:
    """Return True if a variable with this name contains a secret."""
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_")) or name == "ANTHROPIC_CUSTOM_HEADERS"


class SecretRedactor:
    """Replaces the secrets of a session in everything that is stored."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Redact the values in `environ` whose names mark them as secrets."""
        secrets = [
            (_encode_env_variable_value(value), name)
            for name, value in (environ or {}).items()
            if len(value) >= _MIN_VALUE_LENGTH
            and is_secret_variable_name(name)
            and not _is_harmless_variable_value(value)
        ]
        # Longest first: one value may contain another.
        secrets.sort(key=lambda pair: len(pair[0]), reverse=True)
        spellings = [
            (each[:_HEAD], each, f"[redacted: {name}]".encode())
            for value, name in secrets
            for each in dict.fromkeys((value, _escape_json_string_bytes(value)))
        ]
        self._long_run_values = [each for each in spellings if _LONG_RUN in each[1].translate(_ALPHANUMERIC)]
        self._other_values = [each for each in spellings if each not in self._long_run_values]

    def redact_text(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        redacted = self.redact_bytes(raw)
        if redacted is raw:
            return text
        try:
            return redacted.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not UTF-8 itself ended inside a character
            return redacted.decode("utf-8", "replace")

    def redact_bytes(self, text: bytes) -> bytes:
        """Return the redacted text; the very same object if there is nothing to redact."""
        for head, value, replacement in self._other_values:
            if head in text:
                text = _replace_secret_value(text, value, replacement)
        # A single byte is found many times as fast as three.
        if b"@" in text and b"://" in text:
            text = _redact_url_passwords(text)
        run_map = text.translate(_ALPHANUMERIC)
        run_start = run_map.find(_LONG_RUN)
        if run_start < 0:
            return text
        original = text
        for head, value, replacement in self._long_run_values:
            if head in text:
                text = _replace_secret_value(text, value, replacement)
        if _PRIVATE in text:
            text = _redact_private_key_blocks(text)
        if text is not original:
            run_map = text.translate(_ALPHANUMERIC)
            run_start = run_map.find(_LONG_RUN)
        return _redact_api_keys(text, run_map, run_start)


def _encode_env_variable_value(value: str) -> bytes:
    """Return the bytes of a variable; text that no variable can hold is encoded as stores encode it."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _is_harmless_variable_value(value: str) -> bool:
    """Return True for a path or a number, which is not a secret itself."""
    return value.startswith(("/", "~/", "./")) or value.isdecimal()


def _escape_json_string_bytes(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")


def _find_all_positions(text: bytes, mark: bytes) -> Iterator[int]:
    position = text.find(mark)
    while position >= 0:
        yield position
        position = text.find(mark, position + 1)


def _replace_secret_value(text: bytes, value: bytes, replacement: bytes) -> bytes:
    pieces: list[bytes] = []
    copied_to = 0
    for position in _find_all_positions(text, value[:_HEAD]):
        if position < copied_to:
            continue
        size = (
            len(value) if text.startswith(value, position) else _match_truncated_secret(text, position, value)
        )
        if size:
            pieces += (text[copied_to:position], replacement)
            copied_to = position + size
    return b"".join([*pieces, text[copied_to:]]) if pieces else text


def _match_truncated_secret(text: bytes, position: int, value: bytes) -> int:
    """Return the length of a value that the end of the text or of its string cut short; else 0."""
    size = _HEAD
    while size < len(value) and text[position + size : position + size + 1] == value[size : size + 1]:
        size += 1
    return size if text[position + size : position + size + 1] in (b"", b'"', b"\n") else 0


def _redact_api_keys(text: bytes, run_map: bytes, run_start: int) -> bytes:
    """Redact keys. `flat` has a blank for each byte that is not alphanumeric; `run` is the first long run."""
    pieces: list[bytes] = []
    copied_to = 0
    word_map = text.translate(_WORD)
    while run_start >= 0:
        # A key starts at the start of its word, which includes dashes and underscores.
        lookback_start = run_start - _MAX_LOOKBACK if run_start > _MAX_LOOKBACK else 0
        blank = word_map.rfind(b" ", lookback_start, run_start)
        start = blank + 1 if blank >= 0 else lookback_start
        previous_byte = text[start - 1] if start else 0
        if previous_byte == _BACKSLASH and text[start : start + 1] in b"nrt":
            start += 1  # in JSON the letter belongs to an escape
        # Most long runs are in words that do not start like a key and do not follow `Bearer`.
        if (
            previous_byte in _BEFORE_KEY
            or text[start : start + 2] in _KEY_BEGINNINGS
            or _has_dots(text, start)
        ) and start >= copied_to:
            found = _match_api_key(text, start)
            if found is not None:
                pieces += (text[copied_to : found[0]], b"[redacted]")
                copied_to = found[1]
        end = run_map.find(b" ", run_start)
        if end < 0:
            break
        run_start = run_map.find(_LONG_RUN, max(copied_to, end))
    return b"".join([*pieces, text[copied_to:]]) if pieces else text


def _match_api_key(text: bytes, start: int) -> tuple[int, int] | None:
    """Return the span of the secret part of a key that starts here, or None."""
    if text[start : start + 2] in _KEY_BEGINNINGS:
        for mark, tail in _KEY_SHAPES.items():
            if text.startswith(mark, start) and (match := re.compile(tail).match(text, start + len(mark))):
                return match.span()
    if text[max(0, start - len(_BEARER)) : start] == _BEARER:
        match = re.compile(_BEARER_TOKEN).match(text, start)
        return match.span() if match else None
    if text[max(0, start - 8) : start].endswith(_DOTTED_MARKS):
        match = re.compile(_DOTTED_KEY).match(text, start)
        return match.span() if match else None
    is_bot = text[start - 1 : start] == b":" and text[max(0, start - 9) : start - 1].isdigit()
    if (is_bot or _has_dots(text, start)) and (match := re.compile(_BOT_TOKEN).match(text, start)):
        return match.span()
    return None


def _has_dots(text: bytes, start: int) -> bool:
    """Return True if a word looks like the first part of a token with three parts."""
    dot = text.find(b".", start + 23, start + 29)
    return dot > 0 and text[dot + 7 : dot + 8] == b"."


def _redact_url_passwords(text: bytes) -> bytes:
    """Redact the password in addresses such as `postgres://user:password@host`."""
    return re.compile(_URL_PASSWORD).sub(
        lambda match: match[0][: match.start(1) - match.start()] + b"[redacted]@", text
    )


def _redact_private_key_blocks(text: bytes) -> bytes:
    pieces: list[bytes] = []
    copied_to = 0
    for position in _find_all_positions(text, _BEGIN):
        marker = text.find(_PRIVATE, position, position + 60)
        if position < copied_to or marker < 0:
            continue
        start = marker + len(_PRIVATE)
        end = text.find(_END, start, start + _MAX_KEY_BLOCK)
        if end < 0:
            match = re.compile(_BLOCK).match(text, start)
            end = match.end() if match else start
        pieces += (text[copied_to:start], b"[redacted]")
        copied_to = end
    return b"".join([*pieces, text[copied_to:]]) if pieces else text


KEY_SHAPE_REDACTOR = SecretRedactor()
"""Redactor without known values: it redacts only what has the shape of a key."""
