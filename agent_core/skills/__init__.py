"""The skill framework: from a class that an author wrote to calls that a model can make.

``skill``           base class, decorator and units for authors
``schema``          contracts made from signatures and type hints, and arguments read by them
``results``         results of methods as JSON
``home``            calls of other skills, as a skill writes them
``triggers``        methods that run by themselves
``settings``        what the owner of a device sets of a skill
``loader``          skills read from instances and folders
``execution``       one call of one method
``runner``          calls with their limits, cancellation and progress
"""
