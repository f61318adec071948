"""An OpenID Connect provider on a loopback address: over TLS, with keys of its own and the device grant."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT = "holdfast-lab"
Answer = tuple[int, Any]
"""Status and JSON, or bytes as they are."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Callers who hang up, and those who refuse our certificate, are part of the tests."""


@dataclass
class IdentityProvider:
    """What it says can be changed while it serves. Stop it after use."""

    folder: Path
    claims: dict[str, Any] = field(default_factory=lambda: {"preferred_username": "ann", "groups": ["ml"]})
    """Of the next ID token, beside those that every one has."""
    pending: list[str] = field(default_factory=list)
    """Errors of the token endpoint, in their order, before it answers with tokens."""
    refresh: str = ""
    """The refresh token that is given; empty: none."""
    interval: int = 1
    expires_in: int = 600
    answers: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    """By path: what is answered in place of the usual."""
    asked: list[str] = field(default_factory=list)
    """Paths of all requests."""
    forms: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        authority = trustme.CA()
        self.ca = self.folder / "provider-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.keys = {"k1": rsa.generate_private_key(65537, 2048)}
        self.published = ["k1"]
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.issuer = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add_key(self, name: str) -> None:
        """Sign by another key from now on, and publish it alone."""
        self.keys[name] = rsa.generate_private_key(65537, 2048)
        self.published = [name]

    def id_token(self, algorithm: str = "RS256", key: Any = None, kid: str | None = None, **claims: Any) -> str:
        """A signed ID token; None among the claims leaves one out."""
        now, name = int(time.time()), self.published[-1]
        usual = {"iss": self.issuer, "aud": CLIENT, "sub": "s-1", "iat": now, "exp": now + 300}
        said = {name: value for name, value in (usual | self.claims | claims).items() if value is not None}
        return jwt.encode(said, key or self.keys[name], algorithm, {"kid": kid or name})

    def jwks(self) -> dict[str, Any]:
        """The published keys."""
        return {
            "keys": [
                json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.keys[name].public_key()))
                | {"kid": name, "use": "sig", "alg": "RS256"}
                for name in self.published
            ]
        }

    def answer(self, path: str, form: dict[str, str]) -> Answer:
        """What a request is answered with."""
        self.asked.append(path)
        if form:
            self.forms.append(form)
        if path in self.answers:
            return self.answers[path]()
        match path:
            case "/.well-known/openid-configuration":
                ends = {"device_authorization_endpoint": "device", "token_endpoint": "token", "jwks_uri": "jwks"}
                return 200, {"issuer": self.issuer} | {key: f"{self.issuer}/{end}" for key, end in ends.items()}
            case "/jwks":
                return 200, self.jwks()
            case "/device":
                return 200, {
                    "device_code": "dc-1",
                    "user_code": "WDJB-MJHT",
                    "verification_uri": f"{self.issuer}/activate",
                    "expires_in": self.expires_in,
                    "interval": self.interval,
                }
            case "/token" if self.pending:
                return 400, {"error": self.pending.pop(0)}
            case "/token":
                refresh = {"refresh_token": self.refresh} if self.refresh else {}
                return 200, {"access_token": "at", "token_type": "Bearer", "id_token": self.id_token(), **refresh}
            case _:
                return 404, {}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 30

            def do_GET(self) -> None:
                self._say(provider.answer(self.path, {}))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._say(provider.answer(self.path, dict(urllib.parse.parse_qsl(body))))

            def _say(self, answer: Answer) -> None:
                status, said = answer
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", provider.issuer + "/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        return Handler
