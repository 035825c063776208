"""The desktop program: tray icon, quick chat, confirmations. It talks to a spoke over its local HTTP only."""
