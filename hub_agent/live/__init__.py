"""The live home: what the hub follows, records, watches and remembers without being asked.

``live``    opens all parts in their order
``events``  what happened, for the people it concerns
"""
