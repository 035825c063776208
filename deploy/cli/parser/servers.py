"""What runs until stopped, and what sets it up: ``up``, ``hub``, ``spoke``, ``service``, ``broker``."""

from typing import Final

from contracts.addresses import BROKER_PORTS, HTTP_PORT, HTTPS_PORT

_MQTT: Final = BROKER_PORTS["mqtt"]
_MQTTS: Final = BROKER_PORTS["mqtts"]

TEXT: Final = f"""
+lan: other machines
  | --lan           accept other machines, with TLS; makes the certificates
  | --insecure-lan  accept other machines without TLS: anyone in the network can read tokens and use them
+trust: a broker of others
  --trust-broker  use a broker that Strawberry did not set up, with the login in [broker] of strawberry.toml;
                  all topics are below strawberry/, and all users of that broker can read them
+listeners: of a broker
  --mqtts-port N:port = {_MQTTS}  with --lan; default %(default)s; 0 for any free one
  --ws-port N:port            also accept MQTT over WebSocket on this port; 0 for any free one
+insecure: a hub without TLS
  --insecure  allow an unencrypted connection, to a hub that runs with --insecure-lan

up (serve:up): run a broker, a hub and a local spoke
  Runs a broker, a hub and a local spoke, for this machine only unless --lan is given.
  --broker WHICH              embedded (default), mosquitto (run an installed one), or the address of a
                              running broker, for example mqtt://127.0.0.1:1883
  + +trust
  --http-port N:port = {HTTP_PORT}   default %(default)s; 0 for any free one
  --mqtt-port N:port          default: port of [broker] in strawberry.toml, else {_MQTT}, or the next free
                              one where another program uses it; 0 for any free one
  + +lan
  --https-port N:port = {HTTPS_PORT}  with --lan; default %(default)s; 0 for any free one
  + +listeners
  --no-spoke                  do not run a local spoke

hub (serve:run_hub): run the hub alone
  --broker URL                default: url of [broker] in strawberry.toml, else the broker of this home
  + +trust
  --http-port N:port = {HTTP_PORT}   default %(default)s; 0 for any free one
  + +lan
  --https-port N:port = {HTTPS_PORT}  with --lan; default %(default)s; 0 for any free one

spoke ACTION (serve): join a hub, and offer this machine's skills to it
spoke join (hub.join): join a hub by a code that its owner approves
  Shows a code and waits for its approval with 'strawberry devices approve CODE' on the hub. Both screens must
  show the same fingerprint.
  [URL]        for example https://hub.local:8443; default: search the network
  --name NAME  display name of this device; default: the host name
  --hub-key F  expected fingerprint of the hub's key
  + +insecure
spoke run (:run_spoke): offer this machine's skills to the hub
  The device must have joined: with 'strawberry spoke join', or here with an enrolment token from
  HUB_DEVICE_TOKEN or --token-file.
  --hub URL          for example https://hub.local:8443; default: the hub it has joined
  --hub-key F        fingerprint of the hub's key, printed by 'devices add'
  + +insecure
  --skills DIR ...   folder of skills; may be repeated; default: skills/ in the data directory
  --samples          also offer the sample skills
  --token-file FILE  file with the enrolment token, - for standard input
  --with-parent      (hidden)

+manager: of a service
  | system=--user = no     for this user, without root (default)
  | system=--system = yes  for the whole machine; needs root
+installing: a service
  + +manager
  --now               also start it now; a running one is restarted if its unit changed
  --print             print the unit and change nothing
  --memory SIZE       memory cap; default: 1G for a spoke, 3584M for hub and up
  --writable DIR ...  a directory that skills may write to, besides the data directory; may be repeated
  --run-as NAME       with --system: user it runs as; default: the user who called sudo

service ACTION (service): run hub or spoke as a service that starts with the machine
service install SERVICE: install a service, or change it
  Writes a systemd unit with these options; passwords and tokens are never in it.
service install up (:install): broker, hub and a local spoke, as 'strawberry up'
  + +installing
  + up
service install hub (:install): the hub alone, as 'strawberry hub'
  + +installing
  + hub
service install spoke (:install): the skills of this machine, as 'strawberry spoke run'
  + +installing
  + spoke run
service status: show whether the services run
  service=[{{up,hub,spoke}}]  default: all
  + +manager
service logs: show the log of a service
  service=[{{up,hub,spoke}}]  default: all
  + +manager
  -f, --follow             keep showing new lines; Ctrl-C ends
  -n, --lines N:int = 100  default %(default)s
service remove: stop a service and remove it
  service={{up,hub,spoke}}  which one
  + +manager

broker ACTION (broker): run, set up and check a broker; logins for MQTT programs
broker run (serve:run_broker): run the embedded broker alone
  --mqtt-port N:port          default: port of [broker] in strawberry.toml, else {_MQTT}, or the next free
                              one where another program uses it; 0 for any free one
  + +lan
  + +listeners
  --with-parent              (hidden)
broker provision: set up a Mosquitto of your own for Strawberry
  Sets up roles and the hub's login on a Mosquitto with the dynamic security plugin. Asks for the password of
  its admin (or takes it from STRAWBERRY_BROKER_PASSWORD or standard input) and stores it nowhere. Clients
  that the broker knows already keep working.
  URL                   for example mqtt://127.0.0.1:1883
  --admin NAME = admin  user name of its dynamic security admin; default %(default)s
  --ca FILE             certificate authority of an mqtts address; default: those of the system
  --insecure            allow a broker on another machine without TLS: others in the network can read
                        everything
broker check: try whether logins work and foreign access is denied
  [URL]  default: the broker in use
  + +trust
broker login (hub.logins, hub): make a login for a program that watches the bus, such as MQTT Explorer
  The login may read presence and values, but no calls. It may subscribe to #.
  --home-assistant  for Home Assistant: what is exposed to it, and nothing else
  NAME              for example mqtt_explorer
  --chat            also allow chat, over hub/chat/NAME/…
  --days N:days     days until it expires, or never (a hundred years); default 365, and never with
                    --home-assistant
"""
