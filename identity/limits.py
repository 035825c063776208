"""Limits of keys, tokens, passwords and files: sizes, waits and what is remembered."""

import sys
from typing import Final

SCRYPT_WORK: Final = 17
"""Logarithm of the cost, as OWASP advises for scrypt: 128 MiB, and a second on a small machine."""
MOST_SCRYPT_WORK: Final = 20
"""A file that asks for more than 1 GiB is refused: its header is read before anything in it is known."""
LONGEST_AGE_LINE: Final = 200
"""Bytes of a line in the header of an encrypted file."""
CERTIFICATES_S: Final = 5.0
"""How long another process may take to make the same files; it takes milliseconds."""
LONGEST_NAME: Final = 120
DEEPEST: Final = 16
"""Characters of a name in the path of a confined file, and names in it."""
HASH_MEMORY_KIB: Final = 32 * 1024
"""Of a hash of a password. Only one is made at a time, so that a hub on a small machine has it to spare."""
HASH_ROUNDS: Final = 3
"""Passes over it: more than OWASP asks for (19 MiB, twice), about 50 ms."""
MOST_PASSWORDS_WAITING: Final = 16
"""Of a person who logs in, the password is checked within seconds also on a small machine."""
PASSWORD_WAIT_S: Final = 5
"""When to try again where too many are checked."""
LONGEST_PROOF: Final = 4096
"""Characters."""
BEFORE_START_S: Final = 2
"""A proof from before this start may have been used already, and is refused; clocks agree to this."""
PROOFS_REMEMBERED: Final = 20_000
"""Proofs of one key that are remembered: 160 requests a second."""
LEEWAY_S: Final = 5
"""The same skew that calls are allowed: small enough that an expired token is soon refused."""
LONGEST_TOKEN: Final = 4096
"""Characters."""

# Files that processes share.

FILE_LOOK_S: Final = 0.05
FILE_HELD_S: Final = 1.0 if sys.platform == "win32" else 5.0
"""How long others may only look. Windows has no shared lock that tells them from a holder: a second is enough
to outlast them, and little for a person who learns who holds it."""
