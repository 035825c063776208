"""The embedded broker: amqtt, made strict, for a home that runs no broker of its own."""
