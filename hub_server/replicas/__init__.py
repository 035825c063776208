"""A hub beside others on one database and one bus, of which one leads."""
