"""What operators see of a hub: metrics for Prometheus, traces for OpenTelemetry.

``metrics``  what is counted, in plain numbers
``http``     ``/metrics``
``traces``   the spans of turns, sent to a collector
"""
