"""``strawberry voice``: listening and speaking on this machine."""

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add the command."""
    actions = add_actions(commands, "voice", help_="listen, speak, mute, and try the microphone")
    module = "deploy.cli.voice"

    show = actions.add_parser(
        "show", parents=[parents.common], help="show what the voice of this machine does"
    )
    show.set_defaults(run=f"{module}:show")

    listen = actions.add_parser(
        "listen", parents=[parents.common], help="listen now, without the wake word, and wait for the answer"
    )
    listen.set_defaults(run=f"{module}:listen")

    say = actions.add_parser("say", parents=[parents.common], help="speak a text on this machine")
    say.add_argument("text", metavar="TEXT", help="what to say")
    say.add_argument("--output", metavar="FILE.wav", help="write it to a file instead")
    say.set_defaults(run=f"{module}:say")

    devices = actions.add_parser(
        "devices", parents=[parents.common], help="list microphones and loudspeakers"
    )
    devices.set_defaults(run=f"{module}:devices")

    level = actions.add_parser(
        "level", parents=[parents.common], help="show how loud the microphone is, and what wakes it"
    )
    level.add_argument("--seconds", type=float, default=10, metavar="N", help="for how long; default 10")
    level.set_defaults(run=f"{module}:level_meter")

    test = actions.add_parser(
        "test",
        parents=[parents.common],
        help="show what is understood of a sound file",
        description="Shows whether the wake word is heard in a WAV file, and what is understood after it. "
        "Nothing is called.",
    )
    test.add_argument("file", metavar="FILE.wav", help="16-bit WAV")
    test.add_argument("--no-wake-word", action="store_true", help="the file begins with what is said")
    test.set_defaults(run=f"{module}:test")

    for name, words in (("mute", "close the microphone"), ("unmute", "open the microphone again")):
        mute = actions.add_parser(name, parents=[parents.common], help=words)
        mute.set_defaults(run=f"{module}:{name}")
