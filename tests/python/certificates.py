"""Authorities and certificates, made by the openssl command while a test runs."""

import subprocess


class Authority:
    """Its certificate is `pem`; it issues certificates as (certificate, key), both paths."""

    def __init__(self, folder, name):
        self._folder = folder
        self.pem, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _make(name, self.pem, self._key, "-addext", "basicConstraints=critical,CA:TRUE")

    def issue(self, name, *, names="", usage):
        """`names` are subject alternative names, `usage` is "serverAuth" or "clientAuth"."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        extensions = ["basicConstraints=critical,CA:FALSE", f"extendedKeyUsage={usage}"]
        if names:
            extensions.append(f"subjectAltName={names}")
        words = [word for extension in extensions for word in ("-addext", extension)]
        _make(name, certificate, key, "-CA", self.pem, "-CAkey", self._key, *words)
        return certificate, key


def _make(name, certificate, key, *words):
    # fmt: off
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "1", "-subj", f"/CN={name}", "-out", certificate, "-keyout", key, *words],
        check=True, capture_output=True)
    # fmt: on
    key.chmod(0o600)
