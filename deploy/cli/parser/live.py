"""The live home: ``strawberry bus``, ``captures``, ``watchers``, ``nodes``, ``world`` and others."""

from typing import Final

TEXT: Final = """
agents ACTION (live.agents, hub): agents beside the assistant
agents list (:list_agents): list the agents of the hub
agents new (local): write the commented file of a new agent
  Writes agents/NAME.yml in the data directory, to be edited; it counts at once.
  NAME  for example finance
agents check (local): say what is wrong with the files of agents
  Checks agents/*.yml in the data directory: mistakes with file and line, models, missing secrets, and Python
  functions, whose files it imports.
  names=[NAME]...  only these

+topic: where a value is
  TOPIC                                  topic
  --link {bus,home,home_assistant} = bus  default %(default)s

bus ACTION (live.bus, hub): read and publish MQTT topics
  Reads and publishes MQTT topics through the hub: on Strawberry's own bus, or with --link home on the broker
  of [home_broker].
bus latest: show the last value of a topic, or of all that a filter matches
  Shows the last value of each topic, or of all that a filter with + and # matches. With --json and --follow,
  one JSON object per line.
  + +topic
  --follow  go on with new values until Ctrl-C
bus history: show the recent values of a topic
  Shows the recent values of a topic, oldest first. They are kept from the first time that it is watched,
  recorded or asked for.
  + +topic
  --since TIME = 1h       10m, 2h, 1d, or a date and time; default %(default)s
  --limit N:number = 100  at most so many, the newest; default %(default)s
bus publish: publish on a topic
  Publishes on the home broker, after a confirmation unless [home_broker] publish has the topic; on the bus
  only on users/<your id>/events/<name>.
  + +topic
  PAYLOAD              text or JSON, sent as it is
  --retain             have the broker keep it for later subscribers
  --qos {0,1}:int = 0  1 waits until the broker has it

captures ACTION (live.captures, hub): record topics into files
captures start: record topics until the capture is stopped
  Records topics into a file on the hub's machine until it is stopped, over restarts.
  PATH                                    in the hub's folder for captures, for example nas/disk.jsonl
  topics=TOPIC...                         topic filters
  --format {jsonl,csv,raw,h264}           default: by the name of the file, else jsonl
  --link {bus,home,home_assistant} = bus  home for the home broker; default bus
  --zstd                                  compress the files
  --max-bytes N:number                    begin a new file at this size; default 64 MB
  --max-age S:number                      begin a new file after so many seconds
  --max-files N:number                    remove the oldest file when there are more
  --keep-days N:number                    remove files that are older
  --sequence NAME                         field that counts messages: a hole in it is a gap
captures plot: draw the numbers of a jsonl or csv capture
  Draws the numbers in the files of a capture over time, in the terminal or as a PNG.
  file=ID|FILE      a capture of the hub, or a file of one
  --field NAME ...  only this field of the payloads; may be repeated
  --png OUT:path    write a picture

events (live.events, hub): show what happened: watchers, captures, devices, notifications
  Shows the latest events, oldest first. With --json, one event per line.
  --follow              go on with new events until Ctrl-C
  --kind {watcher,capture,presence,notification,timer,node}  only events of this kind
  --last N:number = 20  how many of the latest; default %(default)s

+path: what may be exposed
  PATH  DEVICE, DEVICE.SKILL, DEVICE.SKILL.MEMBER, hub.chat, hub.notify, hub.watchers or hub.watchers.NAME

home-assistant ACTION (live.home_assistant, hub): expose devices, skills and chat to Home Assistant
home-assistant status: list what is exposed
  Lists what is exposed to Home Assistant, and says whether the home broker is connected.
  --all  also list what could be exposed
home-assistant expose: expose a device, a skill or a part of it
  Everybody who uses Home Assistant then sees it and can use it, with your rights. A destructive method is
  exposed only by its own path, one that asks for a confirmation never.
  + +path
home-assistant hide: stop exposing it
  + +path

mcp (mcp:run, hub): serve the home to an MCP client, or list the MCP servers of mcp.json
  Serves the skills of the home over standard input and output, for MCP clients that start servers themselves.
  'list' shows the servers of mcp.json, whose tools are skills of the hub.
  action=[{serve,list}] = serve  serve the home, or list servers; default %(default)s

memory ACTION (live.memory, hub): what the assistant remembers
memory list (:list_entries): list everything that is remembered
memory search: find entries, best match first
  query=WORD...  what to look for
memory forget: forget an entry for good
  ENTRY...  its id, or a part of its text
  --yes     do not ask

+node: one of them
  [DEVICE]  needed if several devices have the program
  NODE      the program

nodes ACTION (live.nodes, hub): programs that run on the devices
nodes list (:list_nodes): list the programs of all devices
  --device NAME  only of this device
nodes start (:act): start a program
  + +node
nodes stop (:act): stop a program
  + +node
nodes restart (:act): stop and start a program
  + +node
nodes build (:act): build a program as its node.yaml says, and show what the build writes
  + +node
nodes logs: show what a program wrote last
  Shows the last lines that a program wrote. With --json and --follow, one JSON object per line.
  + +node
  --follow  go on with new lines until Ctrl-C
  --lines N:number = 50  default %(default)s, at most 1000

notify ACTION (live.notify, hub): try the notifications that go to your phone, messenger or mail
notify test: send yourself a notification
  Sends a notification to each address that [notifications] in strawberry.toml has for you.

+name: a watcher
  NAME  the watcher

+watched: what a watcher sees, and when it is evaluated
  topics=--topic [NAME=]TOPIC ...         a topic of the bus and its name in the predicate; default: its last
                                          level
  home_topics=--home-topic [NAME=]TOPIC ...  a topic of the home broker
  entities=--entity [NAME=]ID ...         an entity of Home Assistant, as binary_sensor.door
  values=--value NAME=PATH ...            where the value is in the payload, as temp=state.temperature
  | --every DURATION                      evaluate so often, as 30s, also while nothing is heard; with a
                                          predicate at most so often
  | --on-change                           evaluate each new value
  | --schedule WHEN                       'every weekday at 7', 'sunset', or cron
  --missed {tell,run}                     what happens to scheduled times that come while the hub is stopped;
                                          of a new watcher: tell
  --predicate EXPR                        condition, as 'disk > 95'
  --allow CALL ...                        a call that it may make: 'devices.nas.CameraSkill.stop node=camera';
                                          a range is level=0..50, a choice mode=low|high

watchers ACTION (live.watchers, hub): keep an eye on values, and notify or act
watchers list (:list_watchers): list the watchers and what they last decided
watchers add: make a watcher
  Makes a watcher. Without --predicate a model proposes one, which you approve.
  NAME         letters, digits, '_', '-' and '.'
  INSTRUCTION  what it should do, in your words
  + +watched
  --dry-run    decide and report, but call nothing
  --yes        approve it without asking
watchers edit: change a watcher
  Changes what is given; topics and calls are replaced as a whole. A watcher that makes calls is then a
  draft, until you approve it again.
  + +name
  --instruction TEXT  what it should do, in your words
  + +watched
watchers show: show a watcher and its history
  + +name
  --limit N:number = 10  entries; default %(default)s
watchers approve: approve a watcher, with changes, so that it begins
  Approves the calls of a watcher, and lets it begin. Also changes one that runs.
  + +name
  --predicate EXPR           another condition; '' for none
  | --dry-run = yes          call nothing
  | dry_run=--live = no      make the calls: no dry run
  --yes                      do not ask
watchers test: show when a watcher would have fired
  Runs the predicate over recorded values. Nothing is called and no notification is sent.
  + +name
  | --since TIME   how far back, as 7d; default 7d
  | --capture ID   a capture: 'captures list' shows them
  --model          have the model decide each time, up to 10 times
watchers run: have the model evaluate a watcher now; it may act
  + +name
watchers snooze: keep a watcher quiet for some time
  + +name
  DURATION  for example 30m or 8h

world (live.world, hub): show what there is in the home, with its state
  Lists devices, skills, areas and entities, with state and age.
  --area NAME             only what is in this area or on this floor
  --kind KIND             device, skill, node, area, state or a kind of entity such as light; entity for all
  --name NAME             only what is called so, or has these words in its name
  --limit N:number = 200  at most so many; default %(default)s

prompt ACTION (live.world, hub): show the assistant's prompt, or edit SOUL.md
prompt show (:show_prompt): show the prompt in sections, each with its tokens
  Shows the prompt of the next message, in sections, with an estimate of their tokens.
  --agent NAME    of this agent; default: assistant
  --message TEXT  the message it is for
prompt edit (:edit_soul, local): edit SOUL.md: what the assistant is like
  Opens SOUL.md of this machine's hub in $VISUAL or $EDITOR; a new one has an example.
"""
