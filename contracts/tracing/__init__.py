"""What belongs together: requests and turns in logs, and where the time of a turn went."""
