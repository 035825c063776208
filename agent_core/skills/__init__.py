"""The skill framework: from a class that somebody wrote to calls that a model can make.

``skill``      the base class and the decorator that authors use
``schema``     a method's signature and type hints as contracts, and arguments coerced back
``results``    what methods return, as JSON
``arguments``  arguments bound and checked by the contracts alone, without the skill's code
``loaded``     a skill that is ready: its instance, its methods, its registration
``loader``     skills found in folders
``runner``     calls executed: threads, limits, cancellation, progress
``search``     an index over the methods of many devices
"""
