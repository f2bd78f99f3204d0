"""An OpenID provider: an HTTP server with real keys, and tokens that are signed with them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://id.example.com", "sparkport"
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


class Provider:
    """The keys that an OpenID provider publishes, and a count of the requests for them."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        self.body: bytes | None = None
        self.status = 200
        self.redirect: str | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 60

            def do_GET(self) -> None:
                provider.asked += 1
                self.send_response(302 if provider.redirect else provider.status)
                if provider.redirect:
                    self.send_header("Location", provider.redirect)
                body = (
                    provider.body
                    if provider.body is not None
                    else json.dumps({"keys": provider.keys}).encode()
                )
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/jwks"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def public(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    kinds: list[tuple[Any, Callable[[Any], Any]]] = [
        (rsa.RSAPrivateKey, lambda each: RSAAlgorithm.to_jwk(each, as_dict=True)),
        (ec.EllipticCurvePrivateKey, lambda each: ECAlgorithm.to_jwk(each, as_dict=True)),
        (ed25519.Ed25519PrivateKey, lambda each: OKPAlgorithm.to_jwk(each, as_dict=True)),
    ]
    to_jwk = next(convert for kind, convert in kinds if isinstance(key, kind))
    return {**to_jwk(key.public_key()), **({} if kid is None else {"kid": kid}), **more}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
    now = int(time.time())
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 600, "iat": now, **claims}
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, key, algorithm, headers=None if kid is None else {"kid": kid})
