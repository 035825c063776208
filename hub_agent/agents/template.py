"""The profile that a new agent begins with."""

from typing import Final

_TEXT: Final = """\
# An agent of this home. Ask it: strawberry chat --agent {name} "…"
# The file is read again when it changes; 'strawberry agents check {name}' says what is wrong.

description: Says in a line what it is for

prompt: |
  You are {name}, an assistant for one thing. Say here which, and how it should answer.

# Which entry of [[models]] in strawberry.toml it asks, or a list of them in order. All of them if left out.
# model: house
# One of its own:
# model:
#   provider: openai
#   model: gpt-5-mini
#   api_key_env: {variable}_API_KEY

# What it can do besides talking. The file tools see its own folder, data/{name}, and nothing else.
tools:
  - calculator
  - file_reader
  - file_writer
  - file_list
# A function of a Python file beside this one:
#  - python: {variable_lower}.py:monthly_total
# A request to an HTTP API, with a secret from .env:
#  - http: exchange_rate
#    description: Gives the rate of a currency in euros.
#    url: https://api.example.com/v1/rates/{{currency}}
#    parameters:
#      currency: {{in: path, description: "ISO code, such as USD"}}
#    headers: {{Authorization: "Bearer ${{{variable}_API_KEY}}"}}
#    open_world: true    # false: no question before it is asked again after a stranger's text was read

# data_dir: data/{name}
# quota: {{files: 1000, bytes: 104857600}}

# Whether sentences such as "turn on the lamp" act at once, without a model.
sentences: off

# What it may call: devices.<device>.<Skill>.<method>, with * for any. Nothing else can be called.
skills:
  allow: []
#  allow: ["devices.*.LampSkill.*", "devices.hub.WorldSkill.*"]
#  read_only: true
"""


def template(name: str) -> str:
    """Return the commented profile of a new agent."""
    variable = name.replace("-", "_")
    return _TEXT.format(name=name, variable=variable.upper(), variable_lower=variable.lower())
