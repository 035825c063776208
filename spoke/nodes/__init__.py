"""Nodes: programs that a spoke starts, watches and stops, one in each folder of ``nodes``.

``manifest``     what ``node.yaml`` says
``processes``    one program with all that it starts
``supervision``  restarts and back-off
``skill``        ``NodesSkill``, by which people and the hub use them
"""
