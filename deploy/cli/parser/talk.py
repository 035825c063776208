"""Using the home: ``chat``, ``tray``, ``history``, ``turns``, ``call``, ``exec``, ``skills``, ``voice``."""

from typing import Final

TEXT: Final = """
chat (chat.command:chat, hub): talk to the assistant
  Sends one message, or starts a conversation if there is none. One message ends with code 1 where there is no
  answer, or where what a sentence calls fails.
  words=[MESSAGE]...    what to say
  --agent NAME          which agent answers; default: assistant
  --device NAME         the device to act on when the message names none
  | --conversation ID   continue this conversation; 'history' lists them
  | newest=--continue   continue the latest conversation

tray (tray:run): show an icon and a quick chat on the desktop
  Shows the state of this machine's spoke in the tray, and a small window to chat. Where a tray runs already,
  its window is shown. Needs: pip install 'strawberry-home[desktop]'.
  --chat                            show the window at once
  --no-tray                         only the window; closing it ends the program
  --shortcut KEYS = Ctrl+Alt+Space  global shortcut of the window, none for none; default Ctrl+Alt+Space

history (chat.history, hub): list, show, rename, export or delete conversations
  Lists the conversations, newest first; with an ID, shows that one, or does with it what the options say.
  [ID]              the conversation; the beginning of its ID is enough
  --limit N:number  how many of the latest; default 20, within one 100
  | --rename TITLE  give the conversation ID a title; '' takes it away
  | --export FILE   write all of the conversation ID to a file: .json, else Markdown
  | --delete        delete the conversation ID for good
  --yes             delete, or replace the file, without asking

turns (chat.turns, hub): show what was asked, how it ended, and where the time went
  Lists the latest turns, newest first; with an ID, shows where its time went.
  [ID]              the turn
  --limit N:number  how many of the latest; default 50
  --outcome {answered,stopped,failed,interrupted,running}  only those that ended so
  --since TIME      a duration such as 2h or 7d, or a time

call (hub.skills, hub): call a method of a skill
  Calls a method of a skill.
  DEVICE                      its name, key or id; 'hub' for the hub's own skills, and for any device that has
                              the skill
  METHOD                      for example LampSkill.turn_on
  arguments=[KEY=VALUE]...    arguments by name, or values in order; JSON or text

exec (hub.skills:execute, hub): run Python in the sandbox, as the assistant does
  Runs Python in the sandbox, as the assistant does; variables stay for the next run.
  CODE  for example 'devices.bedroom_pc.LampSkill.turn_on()'; - for standard input

skills ACTION (hub.skills, hub): what the devices can do
skills list (:list_skills): list every method of every device
skills search: find methods by words, best match first
  query=WORD...  what to look for
skills allow: let the assistant call a method whose author declared nothing without asking
  PATH   as 'skills list' shows it, for example devices.nas.PowerSkill.tidy
  --ask  take it back: you are asked again
skills prefer: set which devices serve a skill for any device
  Sets which devices are called first for devices.hub.SKILL, and approves them as its providers. Without a
  DEVICE it prints the order.
  SKILL                  for example CalculatorSkill
  devices=[DEVICE]...    first one first
  --reset                forget the order

voice ACTION (voice): listen, speak, mute, and try the microphone
voice show: show what the voice of this machine does
voice listen: listen now, without the wake word, and wait for the answer
voice say: speak a text on this machine
  TEXT               what to say
  --output FILE.wav  write it to a file instead
voice devices: list microphones and loudspeakers
voice level (:level_meter): show how loud the microphone is, and what wakes it
  --seconds N:seconds = 10  for how long; default 10
voice test: show what is understood of a sound file
  Shows whether the wake word is heard in a WAV file, and what is understood after it. Nothing is called.
  file=FILE.wav   16-bit WAV
  --no-wake-word  the file begins with the command
voice mute: close the microphone
voice unmute: open the microphone again
"""
