"""What devices and the hub say to each other.

``joining``       how a device joins a home
``presence``      statuses, heartbeats, states and events
``registration``  what a skill is
``rpc``           calls, controls and results
"""
