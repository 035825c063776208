"""Limits of the live home: what bounds its memory, its costs and what a person is told."""

from typing import Final

# Watchers: how many, and what one may see and do.

MOST_WATCHERS: Final = 1_000
"""Of a home."""
MOST_WATCHERS_OF_ONE: Final = 300
"""Of one person."""
MOST_TOPICS: Final = 32
"""Topics of one watcher: each is a subscription, and the model sees a value of each."""
MOST_CALLS: Final = 16
"""Approved calls of a watcher, and calls of one decision."""
NOTES: Final = (5, 1 / 60)
"""Notifications of one watcher at once, and each second: half of what a phone gets."""

# Watchers: when a model is asked. It costs money or heat.

TICK_S: Final = 1.0
"""How often watchers are looked at, for what time alone changes."""
LEAST_EVERY_S: Final = 1.0
DEFAULT_EVERY_S: Final = 300.0
"""Interval of a watcher without a predicate that names none."""
UNKNOWN_S: Final = 60.0
"""How long a predicate must be unknown before the model is asked: values come in one by one after a start."""
RETAINED_S: Final = 5.0
"""From a start until what the broker retains has surely come."""
RECHECK_S: Final = 60.0
LONGEST_RECHECK_S: Final = 900.0
"""While a predicate stays true and there is something left to do, the model is asked again about new values,
less and less often."""

# Watchers: what a model is shown, and what is kept of its decisions.

RECENT_VALUES: Final = 5
"""Earlier values of each name."""
EARLIER_DECISIONS: Final = 5
"""Enough to see that something was done already."""
FAILURES_LOOKED_AT: Final = 6
"""Decisions that are looked at after a restart: after so many failures the wait is the longest."""
MOST_VALUE: Final = 1_500
"""Characters of one value; a camera's metadata can be long."""
MOST_VALUES: Final = 1_000
"""Characters of the values on which a predicate became true."""
MOST_REASON: Final = 500
"""Characters of a reason that a model gives."""
MOST_OUTCOME: Final = 500
"""Characters of what a call returned."""
SHORT_GAP_S: Final = 1.0
"""A gap that is no longer is told to no one."""
MOST_GAPS: Final = 5
MOST_MISSED: Final = 5
"""Times of a schedule that are named where they were missed."""
HISTORY_KEPT: Final = 500
"""Entries in the history of a watcher; at one each five minutes, almost two days, and some 500 kB."""
HISTORY_SHOWN: Final = 50

# Predicates: what bounds the time and the memory of an evaluation.

MOST_TEXT: Final = 2_000
MOST_DEPTH: Final = 50
"""Operations in one another; it bounds the recursion of an evaluation."""
MOST_WINDOWS: Final = 16
"""Different windows of one predicate; each has a memory of its own."""
MOST_NUMBER: Final = 1e15
"""Up to here every whole number is exact."""
MOST_DURATION_S: Final = 31 * 86_400
MOST_ENTRIES: Final = 1_000
"""Values of a window that are kept one by one.

While there are more, those that arrive within 1/500 of the window's length become one entry, which leaves
when the newest of them is too old. A window so has at most 1,500 entries, exact to 0.2 % of its length.
"""

# Back-tests, and what windows hold after a start.

SILENCE_PARTS: Final = 1_000
"""In a long silence of a recording a predicate is looked at after a thousandth of it more: a year of it
takes 11,000 looks and not 31 million."""
MOST_FIRINGS: Final = 1_000
"""Firings that are listed; who fires more often needs another bound, not a longer list."""
MOST_DECIDED: Final = 10
"""Times that a model decides in a back-test."""
RECALLED_S: Final = 86_400.0
"""How far back the windows of predicates are filled again."""
RECALL_S: Final = 3.0
"""How long the start of the hub waits for recordings to be read."""

# Timers and schedules.

MOST_TIMERS: Final = 100
"""Timers of one person."""
LATE_S: Final = 60.0
"""A scheduled time, or the end of a timer, that comes later than this was missed."""
LONGEST_SLEEP_S: Final = 60.0
"""Between two looks at the clock, which may be set meanwhile."""
STORE_AGAIN_S: Final = 5.0
"""Until the next attempt where the database cannot be written."""
