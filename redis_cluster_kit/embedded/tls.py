"""A TLS server's files, and a throw-away authority that issues them with the `openssl` program.

For servers on this host only: the keys are unprotected and the certificates end after two days.
"""

from __future__ import annotations

import ipaddress
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import ServerNotInstalledError, ServerStartError

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2")
# A file of our own: the system's adds extensions that would then stand twice in the certificate. The key
# identifiers are what Python 3.13 asks for.
_CONFIGURATION = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {alternatives}
"""


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files of a TLS server; clients must show a certificate too with `client_certificates`."""

    certificate: Path
    key: Path
    authority: Path
    client_certificates: bool = False

    def client_context(self) -> ssl.SSLContext:
        """A verifying client's context that trusts the authority and can show the certificate."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_tls_files(
    folder: Path,
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1"),
    client_certificates: bool = False,
) -> TlsFiles:
    """Issue a certificate for `names` (hosts and addresses) by an authority of its own, into `folder`."""
    folder.mkdir(exist_ok=True, parents=True)
    made = TlsFiles(
        certificate=folder / "server.crt",
        key=folder / "server.key",
        authority=folder / "authority.crt",
        client_certificates=client_certificates,
    )
    authority_key = folder / "authority.key"
    configuration = folder / "openssl.conf"
    alternatives = ", ".join(f"{_kind(name)}:{name}" for name in names)
    configuration.write_text(_CONFIGURATION.format(alternatives=alternatives))
    _certify(configuration, "authority", made.authority, authority_key)
    signed_by = ("-CA", str(made.authority), "-CAkey", str(authority_key))
    _certify(configuration, "server", made.certificate, made.key, *signed_by)
    return made


def _certify(configuration: Path, section: str, certificate: Path, key: Path, *signed_by: str) -> None:
    kind = ("-config", str(configuration), "-extensions", section, "-subj", f"/CN=rck {section}")
    files = ("-keyout", str(key), "-out", str(certificate))
    command = [_openssl(), "req", "-x509", *_KEY, *kind, *files, *signed_by]
    done = subprocess.run(  # noqa: S603 - the command is ours
        command, capture_output=True, check=False, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise ServerStartError(f"openssl made no certificate for {section}: {done.stderr.strip()}")


def _kind(name: str) -> str:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "DNS"
    return "IP"


def _openssl() -> str:
    found = shutil.which("openssl")
    if found is None:
        raise ServerNotInstalledError("no openssl on the PATH", hint="apt-get install openssl")
    return found
