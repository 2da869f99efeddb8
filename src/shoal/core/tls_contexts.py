"""TLS contexts with the certificates that the variables of a session name, not those of the process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.user_environment import get_user_environment

if TYPE_CHECKING:
    import ssl


class TlsVariables(Struct, frozen=True, kw_only=True):
    """Values of the usual variables; empty if they are not set."""

    certificate_file: str = ""
    certificate_directory: str = ""
    key_log: str = ""
    """File to which the keys of connections are written, for debugging."""


def read_tls_variables(environ: Mapping[str, str]) -> TlsVariables:
    return TlsVariables(
        certificate_file=environ.get("SSL_CERT_FILE", ""),
        certificate_directory=environ.get("SSL_CERT_DIR", ""),
        key_log=environ.get("SSLKEYLOGFILE", ""),
    )


def get_tls_context(variables: TlsVariables | None) -> ssl.SSLContext:
    """Return a context for clients with the system's certificates (including a company's) and certifi's.

    `variables` replace the system's certificates; None means the variables of the process. Raises `OSError`
    if a file that they name cannot be used.
    """
    if variables is None:
        variables = read_tls_variables(get_user_environment().variables)
    return _create_context(variables)


@lru_cache(maxsize=16)
def _create_context(variables: TlsVariables) -> ssl.SSLContext:
    import ssl

    # Not `create_default_context`: it and OpenSSL read the variables of the process.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    system = ssl.get_default_verify_paths()
    file = _if_exists(variables.certificate_file or system.openssl_cafile)
    directory = variables.certificate_directory or _if_exists(system.openssl_capath)
    if file or directory:
        try:
            context.load_verify_locations(file, directory)
        except OSError as error:
            raise OSError(f"the certificates in {file or directory} cannot be used: {error}") from error
    if variables.key_log:
        context.keylog_filename = variables.key_log
    try:
        import certifi
    except ImportError:
        return context
    context.load_verify_locations(certifi.where())
    return context


def _if_exists(path: str) -> str | None:
    return path if Path(path).exists() else None
