"""Setting up and maintaining: ``setup``, ``models``, ``backup``, ``certs``, ``doctor`` and others."""

from typing import Final

from agent_core.models.providers import PROVIDERS

TEXT: Final = """
setup [COMMAND] (setup): choose a model, try it, and write strawberry.toml and .env
  Without options it asks for everything. A key is never an argument: type it unseen, name its environment
  variable with --key-env, or give it on standard input with --key-stdin.
  --provider {PROVIDERS}  add a model of this provider without asking
  --model MODEL           model name at the provider
  --name NAME             your name for it; default: made from the model name
  --base-url URL          address of an OpenAI-compatible server, or of Ollama
  --key-env VARIABLE      environment variable that holds the key
  --key-stdin             read the key from standard input
  --tools {code,native}   how it calls skills; default: native for small models of Ollama, else code
  --no-test               write it without trying it first
setup home-assistant (home_assistant:setup): connect Home Assistant, for its entities
  Asks for the address of Home Assistant and a long-lived access token, tries them, and writes them to
  strawberry.toml and .env.
  --url URL      address, as http://homeassistant.local:8123
  --token-stdin  read the token from standard input
  --no-test      write it without trying it first

models ACTION (models): list models, and get new ones for Ollama
models list (:list_models): list the models, whether they answer, and those in Ollama
  --no-ask  do not try whether each answers
models pull: download a model into Ollama
  Downloads a model into Ollama. After Ctrl-C the same command continues.
  NAME              name in Ollama's library, for example qwen3:4b
  --ollama ADDRESS  address of Ollama; default: from strawberry.toml, or OLLAMA_HOST

+passphrase: of a backup
  --passphrase-file PATH  file with the passphrase, - for standard input; default: it is typed, unseen

backup (backup): write all data of this home into one encrypted file
  Writes database, keys, certificates, settings, memory, agents and skills into one file, encrypted with a
  passphrase. The hub may run. Any program for the age format opens it: age -d FILE | tar xz
  FILE        the file to write, for example home.age
  --captures  also captures, and values recorded for watchers
  + +passphrase
restore (backup): restore a backup while no hub runs here
  Checks all of a backup before it changes anything. Restoring ends all logins of people and programs, except
  where the home that is replaced knows which of them are still valid.
  FILE                 a file that 'strawberry backup' wrote
  --check              check it and show what it holds, no more
  --replace            replace what is in this home, and keep it in replaced/
  --revoke DEVICE ...  revoke this device, which is valid in the backup; may be repeated
  --yes                do not ask
  + +passphrase

certs (home): show, make and renew the certificates for --lan
  Shows the certificates. With --name or --renew it makes an authority for this home, once, and a server
  certificate with names and addresses of this machine. Devices that join trust this authority and no other.
  --name N ...  another name or address of this machine; may be repeated
  --renew       make a new server certificate even if the present one is valid
purge (home, hub): remove everything that Strawberry published from the brokers
  --yes  do not ask
doctor (home, hub): check this installation and say how to fix it
  --running       only tell whether hub or spoke of this machine answer, for a container's health check
  --support FILE  write a .zip for a report of a fault: versions, results, settings and logs, without secrets
update (home): update this program, or say how that is done here
  Updates an installation that install.sh made, and restarts its services; if one does not start, the version
  before is used again. For others it prints the command that updates them.
  | --check              only ask whether there is a newer version
  | --rollback           use the version before again
  | wheel=--from WHEEL   use this file, not the newest release
""".replace("{PROVIDERS}", f"{{{','.join(PROVIDERS)}}}")
