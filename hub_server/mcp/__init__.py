"""Model Context Protocol: the hub as a server of it, and servers of others as skills.

``http``     the route ``/mcp``: who may come in, sessions and their end; imports the library at the first use
``server``   tools, resources and prompts that a client gets
``runs``     a tool call that goes on while its person is asked
``clients``  the servers of ``mcp.json``, started, watched and offered as skills
``file``     ``mcp.json``
``foreign``  tools of others as methods of a skill
"""
