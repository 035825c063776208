"""Limits of what is read from JSON, and of what is shown of it."""

from typing import Final

# Texts and names.

FINGERPRINT_SHOWN: Final = 16
"""Characters of a joining fingerprint: 80 bits, more than can be searched in the life of a code."""
MAX_KEY: Final = 32
MAX_PHRASE_DEPTH: Final = 16
"""Phrases inside each other that are read from JSON: why a watcher with a long condition fired has nine."""
MAX_VALUE_SHOWN: Final = 60
MAX_NAME_COMPARED: Final = 100
"""Of a name that is compared with others: one of 20,000 letters took 20 ms."""
LEAST_ABBREVIATION: Final = 4
"""Letters from which on a name that begins so is near, however much longer it is."""

MAX_FILES: Final = 4
"""Files of one message, and as many pictures."""
MAX_FILE_TEXT: Final = 32_000
"""Characters of the files of a message, as many as of itself: some 8,000 tokens of each later question."""
MAX_QUESTION_SHOWN: Final = 160
MAX_IMAGE: Final = 900_000
"""Characters of a picture in base64; a body of the API has 1 MiB. Pages send smaller ones."""

# Traces.

MAX_SPAN_DETAIL: Final = 4_000
"""Characters of one detail: a program of a hundred lines."""
MAX_SPAN_NAME: Final = 200

# What people and skills call things.

MAX_LABEL: Final = 64
MAX_LABELLED: Final = 129
"""Characters of ``method.argument``."""
MOST_LABELS: Final = 1_000
"""Of a skill in one language: 256 methods with a few arguments each."""
MOST_LABEL_LANGUAGES: Final = 20
MOST_USES: Final = 64
"""What a skill may call on other devices; an owner reads all of it."""
MAX_UNAVAILABLE_REASON: Final = 300
"""Characters of why a skill cannot be used: file, line and the first line of an error."""
MAX_HOME_CARD_ID: Final = 300
MOST_HOME_CARDS: Final = 2_000
"""A home has at most 1,000 things on the page; those of devices that are away for a while are kept."""
MOST_HOME_NAMES: Final = 64
