"""What Home Assistant has, and Zigbee2MQTT where there is none, for the assistant.

``entities``    what can be named, read and switched, found by name, area, floor and domain
``registry``    Home Assistant's registries and states as entities
``connection``  its WebSocket API
``client``      the connection kept up, and what it says kept up to date
``zigbee``      the same from the devices of Zigbee2MQTT
``topics``      states as topics of a link
``control``     what may be called, and what asks first
``skill``       the methods and their sentences
``inward``      all of it, opened
"""

from hub_home_assistant.inward.inward import Inward

__all__ = ["Inward"]
