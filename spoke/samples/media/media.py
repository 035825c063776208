"""The skill: whatever plays music or films on this computer, and its loudspeaker."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from contracts.errors import ConfigError, NotFound, StrawberryError
from strawberry_skills import Skill, Unit, skill_method

from . import loudspeaker
from .players import Player, Playing, open_players

Percent = Annotated[int, Field(ge=0, le=100), Unit("%")]
Volume = Annotated[int, Unit("%")]

_PLAYING = {
    "en": "Playing[ {result.title}][ by {result.artists}].",
    "de": "Es läuft[ {result.title}][ von {result.artists}].",
}
_VOLUME = {"en": "The volume is {result}.", "de": "Die Lautstärke ist {result}."}


class MediaSkill(Skill):
    """Controls media players (music, films, browsers that play) and the volume of this computer."""

    labels = {
        "de": {
            "MediaSkill": "Medien",
            "list_players": "Wiedergabegeräte",
            "change_volume": "Lauter",
            "turn_down": "Leiser",
            "player": "Wiedergabegerät",
        },
        "en": {"list_players": "Players", "change_volume": "Louder", "turn_down": "Quieter"},
    }

    @skill_method(read_only=True)
    async def list_players(self) -> list[Player]:
        """List the players that run, and whether they play."""
        async with open_players() as players:
            return await players.all()

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(play|resume|continue) [the] music", "(resume|continue) (playback|playing)"],
            "de": ["spiele [die] Musik [weiter]", "[die] Musik (weiter|fortsetzen)"],
        },
        responses=_PLAYING,
    )
    async def play(self, player: str | None = None) -> Playing:
        """Start playing, or go on.

        Args:
            player: Name of a player; by default the one that plays, or played last.
        """
        return await self._told("Play", player)

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(pause|stop) [the] (music|playback|film|video)"],
            "de": ["(pausiere|stoppe) [die] (Musik|Wiedergabe)", "[die] Musik anhalten"],
        },
        responses={"en": "Paused.", "de": "Angehalten."},
    )
    async def pause(self, player: str | None = None) -> Playing:
        """Pause.

        Args:
            player: Name of a player; by default the one that plays.
        """
        return await self._told("Pause", player)

    @skill_method(
        sentences={
            "en": ["[play] [the] next (song|track)", "skip (this|the) (song|track)"],
            "de": ["[spiele] [das] (nächstes|nächste) (Lied|Stück)"],
        },
        responses=_PLAYING,
    )
    async def next_track(self, player: str | None = None) -> Playing:
        """Go on to the next track.

        Args:
            player: Name of a player; by default the one that plays.
        """
        return await self._told("Next", player)

    @skill_method(
        sentences={
            "en": ["[play] [the] previous (song|track)"],
            "de": ["[spiele] [das] (voriges|vorige) (Lied|Stück)"],
        },
        responses=_PLAYING,
    )
    async def previous_track(self, player: str | None = None) -> Playing:
        """Go back to the previous track.

        Args:
            player: Name of a player; by default the one that plays.
        """
        return await self._told("Previous", player)

    @skill_method(
        read_only=True,
        untrusted_output=True,
        sentences={
            "en": ["what is playing [now]", "what song is (this|playing)"],
            "de": ["was läuft (gerade|da)", "welches Lied (ist das|läuft) [gerade]"],
        },
        responses={
            "en": "{result.title}[ by {result.artists}] on {result.player}.",
            "de": "{result.title}[ von {result.artists}] auf {result.player}.",
        },
    )
    async def now_playing(self, player: str | None = None) -> Playing:
        """Return what plays: title, artists, album, volume.

        Args:
            player: Name of a player; by default the one that plays.
        """
        async with open_players() as players:
            return self._shown(await players.playing(await players.choose(player)))

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["(set|turn) [the] volume to {percent} [percent]"],
            "de": ["(stelle|stell) [die] Lautstärke auf {percent} [Prozent]"],
        },
        responses=_VOLUME,
    )
    async def set_volume(self, percent: Percent, player: str | None = None) -> Volume:
        """Set how loud a player is, or the loudspeaker where none runs, and return it.

        Args:
            percent: From 0 to 100.
            player: Name of a player; by default the one that plays.
        """
        return await self._changed(lambda _: percent, player)

    @skill_method(
        sentences={
            "en": ["turn up [the] (volume|music) [by {by}] [percent]", "turn [the] (volume|music) up"],
            "de": ["mach [die] Musik lauter", "(stelle|stell) [die] Musik lauter"],
        },
        responses=_VOLUME,
    )
    async def change_volume(
        self, by: Annotated[int, Field(ge=-100, le=100)] = 10, player: str | None = None
    ) -> Volume:
        """Turn a player, or the loudspeaker where none runs, up or down, and return how loud it is then.

        Args:
            by: How much, in per cent of full volume; negative is quieter.
            player: Name of a player; by default the one that plays.
        """
        return await self._changed(lambda volume: min(100, max(0, volume + by)), player)

    @skill_method(
        sentences={
            "en": ["turn down [the] (volume|music) [by {by}] [percent]", "turn [the] (volume|music) down"],
            "de": ["mach [die] Musik leiser", "(stelle|stell) [die] Musik leiser"],
        },
        responses=_VOLUME,
    )
    async def turn_down(self, by: Percent = 10, player: str | None = None) -> Volume:
        """Turn a player, or the loudspeaker where none runs, down, and return how loud it is then.

        Args:
            by: How much, in per cent of full volume.
            player: Name of a player; by default the one that plays.
        """
        return await self.change_volume(-by, player)

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["mute [the] (computer|speaker|loudspeaker|sound)"],
            "de": ["(schalte|schalt) [den] (Ton|Computer|Lautsprecher) stumm", "mach [den] Ton aus"],
        },
        responses={"en": "It is silent.", "de": "Es ist stumm."},
    )
    async def mute(self) -> None:
        """Mute the loudspeaker of this computer."""
        await loudspeaker.set_muted(True)

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["unmute [the] (computer|speaker|loudspeaker|sound)"],
            "de": ["(schalte|schalt) [den] Ton [wieder] ein", "mach [den] Ton [wieder] an"],
        },
        responses={"en": "The sound is on.", "de": "Der Ton ist an."},
    )
    async def unmute(self) -> None:
        """Turn the sound of this computer on again."""
        await loudspeaker.set_muted(False)

    async def _changed(self, wanted: Callable[[int], int], player: str | None) -> int:
        """Set the volume that is wanted for the present one, and return it."""
        try:
            async with open_players() as players:
                chosen = await players.choose(player)
                current = (await players.playing(chosen)).volume
                if current is None:
                    raise StrawberryError("{player} does not say how loud it is", player=chosen)
                return self._shown_volume(await players.set_volume(chosen, wanted(current)))
        except (ConfigError, NotFound):
            if player is not None or not loudspeaker.has_loudspeaker():
                raise
        percent = wanted(await loudspeaker.volume())
        return self._shown_volume(await loudspeaker.set_volume(percent))

    async def _told(self, command: str, player: str | None) -> Playing:
        async with open_players() as players:
            chosen = await players.choose(player)
            await players.tell(chosen, command)
            return self._shown(await players.playing(chosen))

    def _shown(self, playing: Playing) -> Playing:
        """Publish what plays, as it was when it was last asked for."""
        shown = {"status": playing.status, "title": playing.title, "artists": playing.artists}
        self.state("now_playing", shown)
        if playing.volume is not None:
            self._shown_volume(playing.volume)
        return playing

    def _shown_volume(self, volume: int) -> int:
        self.state("volume", volume, unit="%")
        return volume
