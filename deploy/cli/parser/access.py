"""Who may take part, and what they did: ``strawberry devices``, ``users``, ``tokens`` and ``audit``."""

from typing import Final

TEXT: Final = """
+device: one of them
  DEVICE  its name, key or id
+trusted: a new device
  --trust-skills  approve what its skills declare, now and later: see 'devices review'
  --shared        everybody at home sees and calls it, not only its owner
+minutes: of a token
  --minutes N:number  how long the token is valid; default 10

devices ACTION (hub.devices, hub): list, add, change, revoke and remove devices
devices list (:list_devices): list all devices, their state and problems
devices add: add a device: make its enrolment token
  Makes an enrolment token, and prints the command to run on the device.
  NAME  display name, for example 'Bedroom PC'
  + +trusted
  + +minutes
devices invite: make a new enrolment token for a device of the list
  Makes a new enrolment token, also for a revoked device. Once the device has used it, its old tokens are
  revoked.
  + +device
  + +minutes
devices approve: approve a device that shows a code
  Shows the device that waits with this code. Its screen must show the same fingerprint. Answering no makes
  the code void.
  [CODE]       as its screen shows it; default: list the devices that wait
  --name NAME  display name; default: the one that the device gave itself
  + +trusted
  --yes        do not ask
devices rename: change the display name of a device
  + +device
  NAME  the new display name
devices set (:change): set area, floor, aliases and owner of a device, and what you leave to it
  Sets what is given; the rest stays. An empty text ('') clears it.
  + +device
  --area AREA              for example 'Living room'
  --floor FLOOR            for example 'Ground floor'
  --alias NAME ...         another name for it; may be repeated, and replaces the earlier ones
  --confirm {on,off}       whether a person at this device may confirm the calls that its messages lead to;
                           off for a new device
  --trust-skills {on,off}  approve what its skills declare, now and later: see 'devices review'
  --scope SCOPE ...        what it may do on its own: chat as its owner, or call skills of other devices; may
                           be repeated; '' for neither; default for a new device chat
  --owner USER             the person who owns it from now on, by name or id
  | --shared = yes             everybody at home sees and calls it, not only its owner
  | shared=--not-shared = no   only its owner sees and calls it
devices review (hub.review): approve what skills of devices declare
  Shows what waits for your approval: looser flags, sentences with free text, serving the whole home,
  documentation for the assistant. In a terminal it asks for each device.
  [DEVICE]                     its name, key or id; default: all devices
  | decision=--approve = yes   approve all of it
  | decision=--deny = no       deny all of it for good
devices revoke: revoke a device's tokens at once; it stays in the list
  + +device
  --yes  do not ask
devices remove: revoke a device, delete it and clear its topics
  + +device
  --yes  do not ask

+user: one of them
  USER  their name or id

users ACTION (hub.users, hub): list, add, change and remove people
users add: add a person, and print a link for their password
  Prints a link with a one-time code, with which the person chooses a password.
  NAME                                name of the person, also for logging in
  --role {admin,member,guest} = member  default %(default)s. admin: manages the home; member: uses it; guest:
                                        calls only methods that change nothing
users code: print a new link for a forgotten password
  Prints a link with a one-time code, with which the person chooses a new password. Until then the old
  password works.
  + +user
users rename: change the name of a person
  + +user
  NAME  the new name
users role: change the role of a person, and end their sessions
  + +user
  role={admin,member,guest}  admin: manages the home; member: uses it; guest: calls only methods that change
                             nothing
users remove: remove a person, and delete their private data
  Deletes a person's conversations, private memory, watchers and timers, and revokes their tokens and devices.
  Devices and captures become yours; files stay.
  + +user
  --yes  do not ask

tokens ACTION (hub.tokens, hub): make, list and revoke tokens for programs
tokens add: make a token with which a program acts as you
  NAME               what the token is for, for example node-red
  --scope SCOPE ...  what it allows: chat, call, confirm, admin or metrics; may be repeated, or chat,call;
                     default chat
  --days N:days      days until it expires, or never (a hundred years); default 365
tokens list (:list_tokens): list your valid tokens, of programs and of browser sessions
  --all  tokens of all people and devices, also revoked and expired ones
tokens revoke: revoke a token at once
  TOKEN  its name, or its id as 'tokens list' shows it
  --yes  do not ask

audit (hub.skills, hub): show who called what, and what was refused
  Lists calls and refused attempts, newest first. An admin sees those of all people, others their own and
  those on their devices. Of arguments only a hash is kept.
  q=[TEXT]                only records that contain this text, for example unlock
  --user USER             only records of this person, by name or id
  --device DEVICE         only calls on this device; hub for the hub's own skills
  --outcome OUTCOME       only with this outcome: result, forbidden, refused, offline, …
  --since TIME            only after this: a duration such as 2h or 7d, or a time
  --until TIME            only before this: a duration or a time
  --limit N:number = 100  at most this many records; default %(default)s
"""
