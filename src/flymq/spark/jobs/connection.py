"""The connection settings of a job, which can be stored on disk: passwords stay in their own files."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from flymq.client.settings import ClientSettings
from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import InvalidPipeline

CLIENT_ID = "flymq-pipeline"


class Connection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster and credentials. Tasks read the files, so they must be on every machine of a Spark cluster."""

    server: str | None = None
    username: str | None = None
    password_file: str | None = None
    tls_enabled: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    def options(self) -> dict[str, str]:
        """Return these settings as options of the Spark format "flymq"."""
        options = {
            "bootstrapServers": self.server,
            "username": self.username,
            "password": self._password(),
            "tlsEnabled": "true" if self.tls_enabled else None,
            "tlsCaFile": self.tls_ca_file,
            "tlsCertFile": self.tls_cert_file,
            "tlsKeyFile": self.tls_key_file,
        }
        return {"clientId": CLIENT_ID} | {name: value for name, value in options.items() if value is not None}

    def client(self) -> FlyMQClient:
        """Return a client for the cluster. Use it in a `with` block."""
        settings: ClientSettings = {"client_id": CLIENT_ID}
        if self.username is not None:
            settings |= {"username": self.username, "password": self._password() or ""}
        if self.tls_enabled or self.tls_ca_file is not None:
            settings["tls_enabled"] = True
        for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
            if (file := getattr(self, name)) is not None:
                settings[name] = file
        return FlyMQClient(self.server, **settings)

    def _password(self) -> str | None:
        if self.username is None:
            return None
        if self.password_file is None:
            raise InvalidPipeline(f"the user {self.username!r} has no password file", hint="Add --password-file FILE.")
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise InvalidPipeline(f"{self.password_file}: {error.strerror}") from error
