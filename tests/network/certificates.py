"""Certificates for tests, made by openssl: authorities, and what they sign."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """An authority with a certificate of its own, `NAME.crt` in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.certificate = folder / f"{name}.crt"
        self._run("req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.crt", name=name)

    def sign(self, file: str, name: str, *, days: int = 2) -> tuple[Path, Path]:
        """Return a certificate for a host or role, and its key.

        Args:
            file: that both are called after.
            days: for which it holds; below zero it has expired.
        """
        for_host = ("-addext", f"subjectAltName=DNS:{name}")
        request, signed = f"{file}.csr", f"{file}.crt"
        self._run("req", *KEY, "-keyout", f"{file}.key", "-out", request, *for_host, name=name)
        signer = ("-CA", f"{self._name}.crt", "-CAkey", f"{self._name}.key", "-CAcreateserial")
        kept = ("-copy_extensions", "copyall", "-days", str(days))
        self._run("x509", "-req", "-in", request, "-out", signed, *signer, *kept)
        key = self._folder / f"{file}.key"
        key.chmod(0o600)
        return self._folder / signed, key

    def _run(self, *words: str, name: str = "") -> None:
        subject = ("-subj", f"/CN={name}") if name else ()
        subprocess.run(
            ["openssl", *words, *subject], check=True, capture_output=True, cwd=self._folder
        )
