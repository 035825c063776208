"""Models behind one protocol: messages in, events out.

``open_gateway`` gives the gateway; ``protocol`` has the messages and events.
"""
