"""Chat: requests, events and records of turns.

``messages``  what MQTT (``hub/chat/{principal}/…``) and HTTP carry
``stream``    frames of the WebSocket ``/api/chat/stream``
``vocabulary``  what can be said in a home, for speech to text
"""
