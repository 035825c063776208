"""Names of skills, methods, arguments and values for people: declared, common, or made of the identifier."""

from collections.abc import Mapping
from typing import Final

DeclaredLabels = Mapping[str, Mapping[str, str]]
"""By language (BCP 47), then by the name of a skill, a member, an argument or a value."""


class Labels:
    """Names in one language.

    Args:
        declared: Of one skill. ``method.argument`` counts before ``argument``.
        language: BCP 47.
        own: What a person calls them, which counts before all others.
    """

    def __init__(self, declared: DeclaredLabels, language: str, own: Mapping[str, str] | None = None) -> None:
        short = language.partition("-")[0].lower()
        languages = dict.fromkeys((language, short))
        self._sources = [own or {}, *(declared.get(each, {}) for each in languages), COMMON.get(short, {})]

    def __call__(self, name: str, *, of: str = "") -> str:
        """Return the name of something.

        Args:
            name: Of a skill, a method, an argument or a state, as its author wrote it.
            of: The method whose argument it is.
        """
        if found := self._find(name, of):
            return found
        # What sets a value is called as that.
        value = name.removeprefix("set_")
        return self(value) if value not in (name, "") else as_words(name)

    def value(self, value: str) -> str:
        """Return a value in words; one that is no word of the skill is text, and stays.

        ``open`` is a method, too: a state of that name is labelled as ``value.open``.
        """
        return self._find(f"value.{value}") or self._find(value) or value

    def entity(self, name: str) -> str:
        """Return the name of an entity: its English word in this language where it is a common one."""
        return self._find(name.casefold().replace(" ", "_"), of="entity") or name

    def _find(self, name: str, of: str = "") -> str:
        found = ((of and source.get(f"{of}.{name}")) or source.get(name) for source in self._sources)
        return next(filter(None, found), "")


def as_words(name: str) -> str:
    """Return an identifier as people write it: ``set_brightness``, ``LampSkill``."""
    words = "".join(f" {each}" if each.isupper() else each for each in name.removesuffix("Skill"))
    words = " ".join((words if words.count(" ") < len(name) / 2 else name).replace("_", " ").split())
    return words[:1].upper() + words[1:].lower()


COMMON: Final[DeclaredLabels] = {
    "de": {
        # Skills
        "FanSkill": "Ventilator",
        "HeatingSkill": "Heizung",
        "LightSkill": "Licht",
        "LockSkill": "Schloss",
        "SensorSkill": "Sensor",
        "WeatherSkill": "Wetter",
        # Methods
        "add": "Hinzufügen",
        "append": "Anfügen",
        "arm": "Scharf schalten",
        "calculate": "Rechnen",
        "change_settings": "Einstellungen ändern",
        "close": "Schließen",
        "create": "Anlegen",
        "date": "Datum",
        "delete": "Löschen",
        "disarm": "Unscharf schalten",
        "find": "Suchen",
        "get_settings": "Einstellungen lesen",
        "list_installation": "Installiertes lesen",
        "lock": "Abschließen",
        "move": "Bewegen",
        "mute": "Stumm schalten",
        "next": "Weiter",
        "next_track": "Nächster Titel",
        "now": "Jetzt",
        "now_playing": "Läuft gerade",
        "open": "Öffnen",
        "value.open": "Offen",
        "pause": "Pause",
        "play": "Wiedergeben",
        "previous": "Zurück",
        "previous_track": "Voriger Titel",
        "pulse": "Kurz einschalten",
        "read": "Lesen",
        "remove": "Entfernen",
        "reset": "Zurücksetzen",
        "restart": "Neu starten",
        "search": "Suchen",
        "send": "Senden",
        "start": "Starten",
        "status": "Zustand",
        "stop": "Stopp",
        "switch_off": "Ausschalten",
        "switch_on": "Einschalten",
        "take_picture": "Bild aufnehmen",
        "toggle": "Umschalten",
        "turn_down": "Leiser",
        "turn_off": "Ausschalten",
        "turn_on": "Einschalten",
        "turn_up": "Lauter",
        "unlock": "Aufschließen",
        "unmute": "Ton an",
        "uptime": "Läuft seit",
        # Arguments and states
        "action": "Aktion",
        "area": "Raum",
        "arguments": "Angaben",
        "battery": "Batterie",
        "brightness": "Helligkeit",
        "by": "Um",
        "call": "Aufruf",
        "category": "Art",
        "color": "Farbe",
        "colour": "Farbe",
        "connected": "Verbunden",
        "cpu": "Prozessor",
        "degrees": "Grad",
        "device": "Gerät",
        "disk": "Festplatte",
        "door": "Tür",
        "duration": "Dauer",
        "energy": "Energie",
        "expression": "Rechnung",
        "hours": "Stunden",
        "humidity": "Luftfeuchtigkeit",
        "illuminance": "Beleuchtungsstärke",
        "level": "Stand",
        "light": "Licht",
        "limit": "Höchstens",
        "line": "Zeile",
        "lines": "Zeilen",
        "load": "Auslastung",
        "memory": "Arbeitsspeicher",
        "message": "Nachricht",
        "minutes": "Minuten",
        "mode": "Betriebsart",
        "moment": "Zeitpunkt",
        "motion": "Bewegung",
        "name": "Name",
        "path": "Pfad",
        "percent": "Prozent",
        "player": "Wiedergabegerät",
        "port": "Anschluss",
        "position": "Stellung",
        "power": "Ein und aus",
        "pressure": "Druck",
        "query": "Suche",
        "quantity": "Größe",
        "seconds": "Sekunden",
        "since": "Seit",
        "speed": "Geschwindigkeit",
        "state": "Zustand",
        "temperature": "Temperatur",
        "text": "Text",
        "time": "Uhrzeit",
        "time_zone": "Zeitzone",
        "title": "Titel",
        "topic": "Topic",
        "until": "Bis",
        "value": "Wert",
        "volume": "Lautstärke",
        "window": "Fenster",
        "words": "Wörter",
        # Entities of the home broker, where they mean something else or are nothing of a skill
        "current": "Stromstärke",
        "entity.contact": "Kontakt",
        "entity.memory": "Speicher",
        "entity.power": "Leistung",
        "linkquality": "Verbindungsgüte",
        "occupancy": "Anwesenheit",
        "presence": "Anwesenheit",
        "smoke": "Rauch",
        "tamper": "Manipulation",
        "vibration": "Erschütterung",
        "voltage": "Spannung",
        "water_leak": "Wasser",
        # Values
        "auto": "Automatisch",
        "away": "Unterwegs",
        "black": "Schwarz",
        "blue": "Blau",
        "closed": "Geschlossen",
        "closing": "Schließt",
        "cool": "Kühlen",
        "detected": "Erkannt",
        "dry": "Trocken",
        "empty": "Leer",
        "full": "Voll",
        "green": "Grün",
        "heat": "Heizen",
        "high": "Hoch",
        "home": "Zu Hause",
        "idle": "Bereit",
        "locked": "Abgeschlossen",
        "low": "Niedrig",
        "medium": "Mittel",
        "off": "Aus",
        "offline": "Nicht erreichbar",
        "on": "An",
        "opening": "Öffnet",
        "orange": "Orange",
        "paused": "Angehalten",
        "pink": "Rosa",
        "playing": "Läuft",
        "purple": "Lila",
        "red": "Rot",
        "stopped": "Gestoppt",
        "turquoise": "Türkis",
        "unavailable": "Nicht erreichbar",
        "unknown": "Unbekannt",
        "unlocked": "Nicht abgeschlossen",
        "wet": "Nass",
        "white": "Weiß",
        "yellow": "Gelb",
    },
    "en": {
        "cpu": "CPU",
        "get_settings": "Read the settings",
        "list_installation": "Read what is installed",
        "expression": "Calculation",
        "pulse": "Switch on briefly",
        "turn_down": "Quieter",
        "turn_up": "Louder",
    },
}
"""Words that many skills have, those of the bundled ones among them."""
