"""Who asks: authenticators turn a bearer token into the name of a principal."""

from sparkport.auth.tokens import Authenticator, TokenAuthenticator

__all__ = ["Authenticator", "TokenAuthenticator"]
