"""Who asks, and what they may do.

Authenticators turn a bearer token into an identity. A policy says what an identity may do.
"""

from sparkport.auth.chain import AuthenticatorChain
from sparkport.auth.jwt import JWTAuthenticator
from sparkport.auth.policy import Grant, Mask, Policy, RowFilter
from sparkport.auth.token_file import TokenFile
from sparkport.auth.tokens import Authenticator, TokenAuthenticator

__all__ = [
    "Authenticator",
    "AuthenticatorChain",
    "Grant",
    "JWTAuthenticator",
    "Mask",
    "Policy",
    "RowFilter",
    "TokenAuthenticator",
    "TokenFile",
]
