"""Limits of the agent: what one turn, one model, one search and one text of others may take."""

from datetime import timedelta
from typing import Final

# Models and their servers.

MAX_REASON: Final = 300
"""Characters of what one model said; providers answer with whole web pages."""
LONGEST_PAUSE_S: Final = 8.0
MODEL_SKIPPED_S: Final = 60.0
"""How long a model is skipped after one failure; doubled for each further one. A conversation of a minute
waits once for a model that hangs, and one that is back is asked again within the next."""
LONGEST_SKIP_S: Final = 600.0
MAX_SCHEMA_SHOWN: Final = 300
"""Characters of a schema in a description."""
MAX_SCHEMA_PARTS: Final = 200
"""Sub-schemas of one parameter that are written out, references followed: a few that refer to themselves
would branch for ever."""
LEAST_CONTEXT_TOKENS: Final = 4096
LEAST_ANSWER_TOKENS: Final = 512
"""Tokens that an answer needs; with less the warning comes."""
MODEL_CONNECT_S: Final = 5.0
GATEWAY_CLOSE_S: Final = 0.05
"""After ``close`` the threads of TensorZero end on their own; an interpreter that exits earlier crashes
at times."""
GATEWAY_EXIT_S: Final = 0.2
"""The same once more at the exit, for a busy machine: 50 ms were too little once in some hundred exits."""
GATEWAY_LATER_S: Final = 5.0
"""How much later than our own limits those of TensorZero come: they end a request that was left."""
OLLAMA_CONNECT_S: Final = 3.0
"""For questions about models, which no model answers."""
SMALL_MODEL_PARAMETERS: Final = 8_000_000_000
"""Parameters below which a model is given skills as tools in place of code."""

# Turns: the prompt, calls and their results.

PROGRAM_S: Final = 60.0
"""Seconds of one program, without those that a person or another agent takes to answer."""
OUTPUT_CHARS: Final = 8_000
"""Characters of one result that the model sees; some 2,000 tokens."""
SEARCH_BYTES: Final = 4_096
"""UTF-8 bytes of one search result."""
NATIVE_TOOLS: Final = 8
"""Methods that are offered to a small model at once, which chooses badly among many."""
NATIVE_TOOL_BYTES: Final = 2_000
"""UTF-8 bytes of one of them; a larger one is not offered."""
NATIVE_TOOLS_BYTES: Final = 8_000
"""Of all together, ``search_skills`` not counted."""
NATIVE_SEARCH_BYTES: Final = 2_048

SAME_FAILURES: Final = 3
"""How often the very same call may fail; a model that repeats it then does not recover by itself."""
DEVICES_LISTED: Final = 20
"""Devices that are listed; ``search_skills`` knows them all."""
LINE_CHARS: Final = 200
MAX_SOURCE_NAME: Final = 64
MAX_SCHEMA_TEXT: Final = 200
MAX_TYPE_DEPTH: Final = 12
MAX_CLASSES_SHOWN: Final = 12
MAX_FIELDS_SHOWN: Final = 24
MAX_VALUES_SHOWN: Final = 40
MAX_VALUE_TEXT: Final = 60
MOST_CLASS_LINES: Final = 100
MAX_CLASSES_TEXT: Final = 3_000
"""Classes behind a signature, fields of each, values of an enum, characters of a value, lines of a whole
skill and characters of one signature: the worst one costs a model a thousand tokens."""
MAX_TOOL_NAME: Final = 64
"""Characters of a name that every provider takes; letters, digits, ``_`` and ``-`` only."""
MAX_TOOL_DESCRIPTION: Final = 400
HEAD_SHARE: Final = 0.7
"""Share of a long text that is kept of its beginning, which says most; its end holds the error."""
MAX_RESULT_SUMMARY: Final = 160
MAX_ERROR_DETAIL: Final = 2_000
"""Characters of an error that go into an event."""
MAX_ARGUMENTS_SHOWN: Final = 2_000
MAX_ARGUMENT_SHOWN: Final = 500
"""Characters of all arguments, and of one, that a person is shown."""

# Texts of people: expressions, times and files.

MAX_EXPRESSION: Final = 1_000
MAX_BITS: Final = 13_000
"""About 3,900 decimal digits: Python itself refuses to write an integer of more than 4,300."""
MAX_FACTORIAL: Final = 1_200
MAX_DIGITS: Final = 300
MAX_TIME: Final = 40
"""Characters of a time."""
MAX_YAML_DEPTH: Final = 20

# Schemas: a device may write any.

MAX_ARGUMENT_DEPTH: Final = 32
MAX_MISFIT_MESSAGE: Final = 300
VALUES_PER_BRANCH: Final = 100
"""Values of an ``enum`` that are compared in the time of a sub-schema."""
MAX_CHECK_STEPS: Final = 125_000
"""Steps that one check may take; each takes one to three microseconds of the processor. A schema that leads
back to itself may branch again at each level of a value. An honest list of 10,000 values that are numbers or
texts (``anyOf``) takes 110,000 steps."""
STEPS_PER_MISFIT: Final = 5
"""Steps that making an error takes, without its text."""
STEPS_PER_REFERENCE: Final = 10
"""Steps that looking up a definition takes."""
WRITTEN_PER_STEP: Final = 100
"""Characters that are written, or members of a list that are compared, in the time of a step."""
COMPARED_PER_STEP: Final = 20
"""Characters of a value, as canonical JSON, that are compared in the time of a step."""
MAX_REFERENCES: Final = 32
"""References that are followed one after the other."""
MAX_SCHEMA_DEPTH: Final = 64
"""Sub-schemas inside each other; pydantic's own for nested models stay below ten."""
MAX_MISFITS: Final = 100
"""Places that do not fit, of which the worst is looked for."""
MAX_CHOICES_LISTED: Final = 50
"""Values of an ``enum`` that an error lists."""
MAX_SCHEMA_PATH: Final = 200
"""Characters of the place of a text within a schema that are shown to the owner."""

# Skills: what fails and blocks.

SKILL_RETRY_S: Final = (5.0, 300.0)
"""First and longest wait before the set-up or a task of a skill that failed runs again."""
SKILL_STEADY_S: Final = 60.0
"""A task that ran for so long has recovered."""
SKILL_BLOCKED_S: Final = 5.0
"""A skill whose event loop does not answer for so long blocks; threads of a busy machine wait less."""
SKILL_START_WAIT_S: Final = 10.0
"""How long a start waits for the set-up of skills; those that take longer follow."""

# Search: what a query, an index and an answer may take.

LISTING_SLICE_S: Final = 0.004
"""How long a listing may keep the event loop at a stretch."""
CATCH_UP_S: Final = 0.3
"""How long a search or a sentence waits for what is not indexed yet; right after a start it may be more."""
EMBEDDED_AT_ONCE: Final = 64
MOST_KNOWN_TOKENS: Final = 4_000
"""Tokens whose vectors are kept, of 32,000; each has 512 bytes."""
EMBEDDING_REQUEST_S: Final = 60.0
MOST_SIMILAR: Final = 50
MOST_QUERIES_KEPT: Final = 256
MAX_EMBEDDED_TEXT: Final = 1_000
MOST_FAILING_SKILLS: Final = 20
"""Skills that did not load or whose task failed, of all devices, in one answer of a search."""
MAX_SIGNATURE: Final = 300
MAX_SUMMARY: Final = 160
MOST_DEVICES_NAMED: Final = 8
MAX_QUERY: Final = 1_000
"""Characters of a question that are looked at; a longer one is a pasted page."""
INDEXED_SUMMARY: Final = 500
INDEXED_TEXT: Final = 1_500
"""Characters of a description that are searched: 8,000 cost 6 ms, and what it is about stands first."""
MAX_QUERY_WORDS: Final = 24
"""A question has fewer; a pasted page must not become a query of a thousand terms."""
MOST_KNOWN_WORDS: Final = 20_000
"""Words whose stems are kept; the documentation of a home's skills has some thousands."""
MAX_KNOWN_WORD: Final = 40
"""Characters of such a word; what is longer is no word that many methods share."""

# Search: the ranking, tuned with the benchmark of searches.

WORDS_SHARE: Final = 0.5
"""Of the score by words in the sum; the rest is the one by meaning."""
LEAST_SUM: Final = (0.15, -0.16, 0.04)
"""Sum that the best match must have: slope over the tenfold number of methods, offset, and least. Fitted with
`WORDS_SHARE` on one half of the requests of the benchmark: the most found where at least 0.55 of those that
nothing fits get nothing."""
VAGUE_MATCH: Final = 0.5
"""Score of the best match by letters, or by words that most methods have: less than one by rare words."""
FACTOR_ON_CURRENT_DEVICE: Final = 1.25
FACTOR_ON_NAMED_DEVICE: Final = 1.5
FACTOR_UNAVAILABLE: Final = 0.7
"""Factors of the score: what is on the current device, on a device that the query names, or nowhere to be
had right now. Small, so that they decide between like matches and not against a better one."""
COLUMN_WEIGHTS: Final = (3.0, 2.5, 2.0, 1.0, 1.0, 3.0)
"""Of the columns of the index, in their order: what the author named it tells more than what they
wrote about it."""
SYNONYM_WEIGHT: Final = 0.45
"""What a synonym counts beside the word itself."""
VALUE_WEIGHT: Final = 0.4
"""Of a name or number in a question that no method knows: most likely the value of an argument."""
LEAST_SCORE: Final = (0.19, -0.18, 0.34)
"""Score that the best match must have, as a part of the information in the question: slope over the tenfold
number of methods, offset, and most. Below it, a match is a chance word more often than an answer, and chance
matches are the more frequent the more methods there are. Tuned on half of the requests of the benchmark."""
TELLING_WORDS: Final = 4
"""Rare words in a question that are enough: a longer one tells a story, and no method has all words of it."""
PRIOR_DOCUMENTS: Final = 100
"""Documents without any of the words that are assumed besides the real ones: in a home with five methods,
too, a word that one of them has is rare."""
SHARED_TRIGRAMS: Final = 0.5
"""Part of a word's trigrams that a document must share to count as alike."""
SHARED_TRIGRAMS_OF_SEVERAL: Final = 0.7
"""The same for a query of several words, some document has half of whose trigrams by chance."""
COMPARED_DOCUMENTS: Final = 100
"""Documents whose letters are compared with those of the query."""
MOST_UNRANKED: Final = 4
"""Words to look for where all are too common to be ranked; each takes a millisecond in 20,000 rows."""

# Sentences: templates of devices, and utterances.

MAX_UTTERANCE: Final = 300
"""Characters of an utterance. Longer ones are no commands; the work of the matcher grows with the length."""
MAX_SENTENCES: Final = 500
"""Templates of one device: some hundreds of methods with a sentence each, in two languages."""
MAX_PROBLEMS: Final = 10
"""Problems of one skill that are kept; a wrong generator makes the same mistake in each method."""
MAX_MATCH_STEPS: Final = 10_000
"""Steps that the templates of one device may take of one utterance: 3 ms, 40 where each is a long check."""
MAX_MATCH_STEPS_OF_ALL: Final = 40_000
"""Steps of all devices together: a match is work of the event loop."""
DEVICE_LEAD_WORDS: Final = 2
"""Words before a device's name that belong to it: ``on the``, ``in der``."""
MAX_COMPILED: Final = 5_000
"""Templates remembered for the next device that has the same; a device may register new ones for ever, and
the largest take 30 kB each."""
MAX_CHOICES_NAMED: Final = 6
"""Choices that a person can keep in mind."""
MAX_RESPONSE_DEPTH: Final = 16
MAX_TEMPLATE: Final = 500
MAX_WAYS: Final = 1_000
"""Combinations of alternatives; the largest honest templates have some hundreds."""
MAX_SLOTS: Final = 10
MAX_BRACKET_DEPTH: Final = 8
"""Brackets inside each other; hassil reads what is inside again for each of them."""
MAX_READINGS: Final = 20
"""Ways of dividing an utterance among free slots that are tried before giving up."""
STEPS_PER_CHECK: Final = 5
"""Steps of a match that last as long as checking a value against one sub-schema."""
MAX_SLOT_NESTING: Final = 4
MAX_SLOT_CHOICES: Final = 8
"""Deeper or with more choices, a schema counts as free text, so that looking takes no time."""
MAX_SPOKEN: Final = 100
"""Characters of a value that a person says."""
MAX_QUESTION: Final = 200
"""Characters of a call in words; a longer one is shown by its arguments."""

# Sentences of `home-assistant-intents`, matched by hassil in a thread.

MAX_NAMED_THINGS: Final = 5_000
"""Names of things; 2,000 take 5 to 12 ms of a match."""
MAX_NAMES_OF_SOURCE: Final = 500
"""Names of the skills of one device, so that it does not take those of all others."""
MAX_THING_NAME: Final = 100
MAX_RECOGNIZED: Final = 200
"""Ways in which an utterance is read; each thing of the same name is one."""
INTENT_WAIT_S: Final = 2.0
"""How long an utterance waits for the match beside the event loop; then it is as if nothing fitted."""
FIRST_INTENT_WAIT_S: Final = 15.0
"""The same while the language is loaded, where no model could answer in its place: on a busy machine
loading took more than five seconds."""
MAX_LANGUAGES: Final = 4
"""Languages that are kept in memory; each takes 10 MB."""
MAX_LANGUAGES_LOADING: Final = 2
"""Languages that load at once: each takes a second of a core, and any request may name one."""
MOST_NUMBER_WORDS: Final = 4
"""Words of a number up to 100: ``soixante et onze``."""
LEAST_CORRECTED: Final = 4
"""Letters of a word that may be misspelt; shorter ones are too near to others."""
MAX_FORMS: Final = 200
"""Forms of one word of a template (those of the package have some forty), or of one misspelt utterance."""
MAX_CORRECTIONS: Final = 8
"""Ways of meaning a misspelt utterance that are tried, those with the fewest other words first."""
MAX_EXAMPLES: Final = 200
NEAREST_EXAMPLES: Final = 3
MAX_INTENT_ANSWER: Final = 2_000

# Skills in processes of their own: what such a process may say.

ISOLATED_FRAME_BYTES: Final = 4 * 1024 * 1024
"""Of one message: the registration of a skill with hundreds of methods; a result has 256 KiB."""
ISOLATED_SKILLS: Final = 20
"""Of one file or folder."""

# Methods of skills that run by themselves.

LEAST_INTERVAL_S: Final = 1.0
MAX_INTERVAL_S: Final = 366 * 86_400.0
CLOCK_LOOK_S: Final = 30.0
"""A clock that is set moves a time of day by at most so much."""
OFFLINE_AGAIN_S: Final = 2.0
"""After this, then twice it and so on, what runs at intervals and found a device offline is run again."""
CLOCK_SET_BACK: Final = timedelta(hours=1)
"""By more than this a clock is set back that was wrong altogether."""
MOST_TRIGGERS: Final = 64
MOST_EVENTS_WAITING: Final = 64
MOST_VALUES_HEARD: Final = 1_024
TRIGGER_BURST: Final = 20.0
TRIGGERS_PER_S: Final = 5.0
"""Of one method: one that causes its own event runs no faster."""
