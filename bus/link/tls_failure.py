"""What went wrong with TLS, in words for people."""

import ssl
from typing import Final

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""No issuer to be found, self-signed, self-signed in the chain (``X509_V_ERR_…`` in OpenSSL's x509_vfy.h)."""
_BAD_SIGNATURE: Final = 7
"""Another authority with the name of the trusted one: it was made anew."""
_OTHER_HOST: Final = frozenset({62, 64})
"""Neither name nor address fits."""
_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)

_PORT_HINT: Final = "Check the port: with TLS it is often 8883. An address without TLS begins with mqtt://."
_AUTHORITY_HINT: Final = (
    "Trust the authority (ca.pem) that its certificate is by. Where the hub has made a new one, join again."
)


def tls_failure(error: ssl.SSLError, host: str) -> tuple[str, str]:
    """Say why a server was not trusted, or why TLS did not come about.

    Args:
        host: Name or address that the server was to prove.

    Returns:
        What happened, to stand behind "no connection to …:", and a hint, which may be empty.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error.verify_code, error.verify_message, host)
    if error.reason in _NOT_TLS:
        return "it does not speak TLS on this port", _PORT_HINT
    if isinstance(error, ssl.SSLEOFError):
        return "it hung up in the TLS handshake", _PORT_HINT
    if "ALERT" in (error.reason or ""):
        return f"it refuses TLS: {_words(error.reason)}", "See the log of the broker."
    return f"TLS failed: {_words(error.reason)}", _PORT_HINT


def _untrusted(code: int, message: str, host: str) -> tuple[str, str]:
    if code in _UNKNOWN_AUTHORITY or code == _BAD_SIGNATURE:
        return "its certificate is by an authority that is not trusted here", _AUTHORITY_HINT
    if code in _OTHER_HOST:
        hint = (
            f"Write a name that it is for, or add this one where it is made: strawberry certs --name {host}"
        )
        return f"its certificate is not for {host}", hint
    if code == _EXPIRED:
        return (
            "its certificate has expired",
            "Renew it where the broker runs (strawberry certs --renew), and check this machine's clock.",
        )
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet", "Check the clocks of this machine and of the broker's."
    return f"its certificate is refused: {message}", _AUTHORITY_HINT


def _words(reason: str | None) -> str:
    return (reason or "no reason given").replace("_", " ").lower()
