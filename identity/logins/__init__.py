"""How people and devices prove who they are."""
