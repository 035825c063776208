"""Failed connections in plain words, in place of those of OpenSSL and of the system."""

import os
import socket
import ssl
from typing import Final

from contracts.phrases import Phrase

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""No issuer to be found, self-signed, self-signed in the chain (``X509_V_ERR_…`` in OpenSSL's x509_vfy.h)."""
_BAD_SIGNATURE: Final = 7
"""Another authority with the name of the trusted one: it was replaced."""
_OTHER_HOST: Final = frozenset({62, 64})
"""Neither name nor address fits."""
_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)
_UNKNOWN_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

_PORT_HINT: Final = "Check the port: with TLS it is often 8883. An address without TLS begins with mqtt://."
_AUTHORITY_HINT: Final = (
    "Trust the authority that its certificate is by: 'ca' in strawberry.toml names its ca.pem. A device "
    "whose hub has made a new one joins again."
)


def connect_failure(error: OSError, host: str, *, tls: bool) -> tuple[str, str]:
    """Return why there is no connection to a broker, and a hint; see `tls_failure`.

    Args:
        tls: Whether it was to speak TLS.
    """
    if isinstance(error, ssl.SSLError):
        return tls_failure(error, host)
    if isinstance(error, socket.gaierror):
        if error.errno in _UNKNOWN_NAME:
            return Phrase("there is no machine named {host}", host=host), "Check the address."
        reason = Phrase("the name {host} cannot be looked up now", host=host)
        return reason, "Check that this machine is in a network."
    if tls and isinstance(error, ConnectionResetError):
        return "it hung up in the TLS handshake", _PORT_HINT
    # asyncio's own text holds a tuple, and `os.strerror` does not know the codes of Windows' sockets.
    if error.strerror and not error.strerror.startswith("Connect call failed"):
        return error.strerror, ""
    return os.strerror(error.errno) if error.errno else str(error) or "no answer", ""


def tls_failure(error: ssl.SSLError, host: str) -> tuple[str, str]:
    """Return why a server was not trusted, or why there is no TLS connection.

    Args:
        host: Name or address that the certificate has to be for.

    Returns:
        What happened, to follow "no connection to …:", and a hint, which may be empty.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error.verify_code, error.verify_message, host)
    if error.reason in _NOT_TLS:
        return "it does not speak TLS on this port", _PORT_HINT
    if isinstance(error, ssl.SSLEOFError):
        return "it hung up in the TLS handshake", _PORT_HINT
    reason = error.reason or ""
    if "VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "it speaks another version of TLS", "Update the older of the two; TLS 1.2 or newer is needed."
    if "ALERT" in reason:
        return "it refused the TLS connection", "See the log of the broker."
    return "no TLS connection could be made", _PORT_HINT


def refused_client(error: ssl.SSLError) -> str:
    """Return why a client that connected to us got no TLS connection."""
    reason = error.reason or ""
    if error.reason in _NOT_TLS:
        return "it does not speak TLS"
    if any(word in reason for word in ("UNKNOWN_CA", "CERTIFICATE", "BAD_CERT")):
        return "it does not trust the certificate of this broker"
    if "VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "it speaks another version of TLS"
    return "the TLS handshake failed"


def _untrusted(code: int, message: str, host: str) -> tuple[str, str]:
    if code in _UNKNOWN_AUTHORITY or code == _BAD_SIGNATURE:
        return "its certificate is by an authority that is not trusted here", _AUTHORITY_HINT
    if code in _OTHER_HOST:
        hint = (
            f"Write a name that it is for, or add this one where it is made: strawberry certs --name {host}"
        )
        return Phrase("its certificate is not for {host}", host=host), hint
    if code == _EXPIRED:
        return (
            "its certificate has expired",
            "Renew it where the broker runs (strawberry certs --renew), and check this machine's clock.",
        )
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet", "Check the clocks of this machine and of the broker's."
    return Phrase("its certificate is not accepted: {message}", message=message), _AUTHORITY_HINT
