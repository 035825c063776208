"""Skills in a process of their own: what both ends say, and the end that has the skills.

``messages``        frames and messages of the pipe
``boot``            script that starts such a process: limits, and which modules of this installation it sees
``child``           the process: loads the skills and runs their calls
"""
