"""Limits of speech: what engines, peers, sounds and sentences may take."""

from typing import Final

# Engines.

ENGINE_S: Final = 30.0
"""How long an engine may take to its next sound; a Wyoming server has shorter deadlines."""
QUESTION_TRIES: Final = 2
"""How often a question is asked."""
MOST_FOLLOWING: Final = 3
"""Answers in a row that are listened to because they end with a question."""
PRONUNCIATION_S: Final = 60.0
MAX_WORD: Final = 60
"""Most letters of a word."""
MAX_SOUND_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one answer: ten minutes. A server that never stops is cut off."""
WAKE_WORD_THRESHOLD: Final = 0.5
"""Probability from which a wake word counts; what the authors of the models recommend."""
SERVICE_RETRY_S: Final = (1.0, 30.0)
"""First and longest wait until something that was missing is looked for again."""

# Sentences: what a decoder is given, and what is spoken.

MOST_GLUED: Final = 50
"""Ways of saying one word with alternatives inside it."""
MOST_COPIED_VALUES: Final = 5_000
"""Values of all references to lists: the decoder copies a list at each, with some 25 kB a value."""
MAX_SPOKEN_SENTENCE: Final = 400
"""Characters of one sentence; a list without a full stop is spoken in pieces."""
MOST_ARGUMENTS_SPOKEN: Final = 6

# Sound.

SPEECH_PROBABILITY: Final = 0.5
"""Probability from which a chunk is speech; what the model's authors recommend."""
SILENCE_PROBABILITY: Final = 0.35
"""Probability below which speech has paused; between the two it goes on as it was."""
SPEECH_BEGIN_S: Final = 0.09
"""A click or a cough is shorter."""
MICROPHONE_SILENT_S: Final = 2.0
"""A microphone that gives no frame for so long is gone: a card that is pulled out says nothing."""
MOST_FRAMES_WAITING: Final = 250
"""Frames that wait to be read, five seconds; the oldest go first."""
PLAYED_AT_ONCE_S: Final = 0.05
"""How much is played at once: speech that is cut short is heard for that much longer at most."""
FILE_SILENCE_S: Final = 2.0
"""What follows a file, so that its last words have an end."""
FILE_LOOK_S: Final = 0.01

# Satellites and Wyoming servers.

MAX_ESPHOME_BYTES: Final = 256 * 1024
"""Bytes of a message; sound comes in pieces of 1 kB."""
MAX_UNPLAYED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of an answer that wait for the loudspeaker: half an hour, sent at once."""
PIECE_BYTES: Final = 128
"""Bytes that a piece of it takes beside its sound: a server may send millions of empty ones."""
CONNECTIONS_PER_ADDRESS: Final = 4
MOST_CONNECTIONS: Final = 16
"""Connections from one address, and of all: Home Assistant has one or two."""
CLOSE_S: Final = 2.0
"""How long a peer may take to read the rest; one that does not read is cut off."""
MAX_DATA_BYTES: Final = 1024 * 1024
"""A server with all voices of Piper describes itself in 300 kB."""
MAX_PAYLOAD_BYTES: Final = 4 * 1024 * 1024
"""A minute of sound, by servers that send an answer in one piece."""
STALL_S: Final = 5.0
"""How long the other side may take nothing of what is sent."""
DISCOVERY_S: Final = 5.0
DISCOVERY_ANSWER_S: Final = 2.0
MOST_ANNOUNCEMENTS: Final = 32
"""Announcements that are looked at."""
