"""Skills that call skills of other devices, through the hub, as real processes."""

from tests.e2e.house import House, wait_for

RELAY = '''
from pathlib import Path

from spoke import Skill, skill_method


class RelaySkill(Skill):
    def _note(self, text):
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write(text + "\\n")
        return text

    @skill_method()
    def switch(self, who: str) -> str:
        """Switch."""
        return self._note(who)

    @skill_method(read_only=True)
    def look(self) -> str:
        """Look."""
        return "on"

    @skill_method(destructive=True)
    def burn(self) -> str:
        """Burn."""
        return self._note("burnt")

    @skill_method(confirm=True)
    def unlock(self) -> str:
        """Unlock."""
        return self._note("unlocked")

    def shred(self) -> str:
        return self._note("shredded")
'''

BUTTON = '''
from strawberry_skills import Skill, every, skill_method


class ButtonSkill(Skill):
    uses = tuple(f"kitchen_pi.RelaySkill.{name}" for name in ("switch", "look", "burn", "unlock", "shred"))

    @property
    def _relay(self):
        return self.home.devices.kitchen_pi.RelaySkill

    @skill_method(destructive=True)
    async def press(self, what: str) -> str:
        """Press."""
        return await getattr(self._relay, what)(*(["pressed"] if what == "switch" else []))

    @skill_method(sentences={"en": ["touch the big button to {what}"]})
    def touch(self, what: str) -> str:
        """Touch; a plain method waits by itself."""
        return getattr(self._relay, what)(*(["touched"] if what == "switch" else []))

    @skill_method(read_only=True)
    async def peek(self, what: str) -> str:
        """Peek."""
        return await getattr(self._relay, what)()

    @skill_method()
    async def elsewhere(self) -> str:
        """Call what it did not declare."""
        return await self.home.devices.kitchen_pi.RelaySkill.other()

    @every("1h")
    async def _by_itself(self) -> None:
        await self._relay.switch(who="by itself")
'''


def test_a_skill_calls_another_device_with_the_rights_of_whom_it_runs_for(house: House) -> None:
    relay = house.add_spoke("Kitchen Pi", {"relay.py": RELAY})
    button = house.add_spoke("Hall Pi", {"button.py": BUTTON}, trusted=False)

    def press(method: str, what: str = "switch") -> str:
        done = house.cli("call", button.id, f"ButtonSkill.{method}", what)
        return done.stdout.strip() or done.stderr

    # Nothing before the owner has approved what it uses.
    assert "may not call kitchen_pi.RelaySkill.switch" in press("touch")
    wait_for(
        lambda: "line 32: ButtonSkill may not call" in house.log(button.id), what="the line of the failure"
    )
    assert relay.journal() == []
    waiting = house.cli("devices", "review").stdout
    assert "ButtonSkill: calls kitchen_pi.RelaySkill.switch" in waiting
    house.json("devices", "review", "--approve")

    assert (press("touch"), press("press")) == ("touched", "pressed")
    assert press("peek", "look") == "on"
    assert press("press", "burn") == "burnt"
    # What runs by itself goes on behalf of the device.
    (button.skills / "button.py").write_text(BUTTON.replace("1h", "2h"))
    wait_for(lambda: "by itself" in relay.journal(), what="the call that no person made")
    audited = house.json("audit", "RelaySkill", "--outcome", "result")
    chains = {(each["actor"].get("skill"), each["actor"].get("device")) for each in audited}
    assert chains == {("ButtonSkill", None), ("ButtonSkill", button.id)}

    # Also where the device itself answers a sentence.
    said = button.ask("/api/chat", {"message": "touch the big button to look"})
    assert (said["mode"], said["answer"]) == ("sentence", "on")
    said = button.ask("/api/chat", {"message": "touch the big button to burn"})
    assert "does more than touch declares" in said["answer"]

    # No more than it declares, nothing that a person has to confirm, nothing undeclared.
    assert "does more than peek declares" in press("peek", "burn")
    assert "does more than touch declares" in press("touch", "burn")
    for what in ("unlock", "shred"):
        assert "confirmation" in press("press", what)
    assert (
        "may not call kitchen_pi.RelaySkill.other"
        in house.cli("call", button.id, "ButtonSkill.elsewhere").stderr
    )
    assert sorted(relay.journal()) == ["burnt", "by itself", "pressed", "touched"]
    refused = house.json("audit", "RelaySkill", "--outcome", "refused")
    assert {each["method"] for each in refused} == {"switch", "burn", "unlock", "shred"}
