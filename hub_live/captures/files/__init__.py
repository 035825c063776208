"""The files of captures.

``formats``    how a sample becomes bytes
``series``     the files of one capture, as they are rolled
``writer``     writes them, in a thread
``reading``    reads them back
``numbers``    reads numbers for plots
"""
