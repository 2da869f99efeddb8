"""Certificates for tests, made by openssl: one authority and one machine that it vouches for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shoal.backends.member_listener import TlsFiles


def create_tls_files(directory: Path, *hosts: str) -> TlsFiles:
    """Create an authority of its own, and a certificate for these addresses."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ",".join(f"IP:{host}" for host in ("127.0.0.1", *hosts))
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _run(directory, "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority")
    _run(directory, "req", *new_key, "-keyout", "machine.key", "-out", "machine.csr", "-subj", "/CN=machine")
    (directory / "names").write_text(f"subjectAltName={names},DNS:localhost\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    _run(directory, "x509", "-req", "-in", "machine.csr", *signing, "-out", "machine.crt", "-days", "2")
    return TlsFiles(
        certificate=str(directory / "machine.crt"),
        key=str(directory / "machine.key"),
        authority=str(directory / "ca.crt"),
    )


def build_ray_variables(files: TlsFiles) -> dict[str, str]:
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": files.certificate,
        "RAY_TLS_SERVER_KEY": files.key,
        "RAY_TLS_CA_CERT": files.authority,
    }


def _run(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
