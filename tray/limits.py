"""Limits of the tray: what it waits for, and how much it shows."""

from typing import Final

# What is waited for.

PANEL_TRIES: Final = 12
PANEL_TRY_MS: Final = 250
"""At a login the panel may come a little later than we; Qt asks for it once and for all."""
MESSAGE_MS: Final = 15_000
OTHER_TRAY_MS: Final = 5_000
CLICK_S: Final = 60.0
"""How long a click is waited for: no question is open for longer."""
SPOKE_TIMEOUT_S: Final = 10.0
LOOK_SHOWN_S: Final = 1.0
"""Between two looks while a person looks, too, or a voice may change at any moment."""
LOOK_HIDDEN_S: Final = 5.0
SPOKE_RETRY_S: Final = (0.5, 5.0)
REDRAW_MS: Final = 60
"""Between two pictures of an answer that is coming: more often costs and shows no more."""

# What is shown.

MOST_STEPS: Final = 40
MAX_VALUE_SHOWN: Final = 1_000
"""Of one argument of a question; more would push its buttons out of sight."""
MAX_DETAIL_SHOWN: Final = 120
EXCHANGES_SHOWN: Final = 20
"""Exchanges that are shown of an earlier conversation."""
RECENT_CONVERSATIONS: Final = 6
MAX_RECENT_SHOWN: Final = 44
