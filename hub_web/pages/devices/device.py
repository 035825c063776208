"""One device: how it is, what it may, its skills run by forms, its settings and its programs."""

from collections.abc import Callable
from functools import partial

from nicegui import ui

from agent_core.skills.settings import SETTINGS_METHODS
from contracts.answers.devices import DeviceAnswer
from contracts.answers.skills import MethodBody, SkillBody
from contracts.claims import DeviceScope
from contracts.errors import CallError
from hub_live.events.kinds import NodeData
from hub_registry.devices.devices import DeviceChange
from hub_registry.http.devices import change_device, invite, remove_device, revoke_device, show_device
from hub_registry.http.skills import list_methods
from hub_registry.http.users import list_users
from hub_web import limits, sb
from hub_web.pages.devices.devices import load_words, place_and_owner, state_of
from hub_web.pages.devices.installation import Installation
from hub_web.pages.devices.programs import Programs
from hub_web.pages.devices.review import Review
from hub_web.parts.calls.calls import call, call_by_form, flags, human, labels_of, method_summary, run_by_form
from hub_web.parts.calls.forms import SchemaForm, choice, text_field
from hub_web.parts.invitation import show_invitation
from hub_web.parts.plots import plot
from hub_web.shell import page
from hub_web.texts import lasting, text
from hub_web.view import part, view


@page("/devices/{name}", title="Device", icon="devices", width="wide")
async def device(name: str) -> None:
    with ui.element("div").classes("sb-contents") as place:
        await _Device(name, place).open()


class _Device:
    """The page of one device."""

    def __init__(self, name: str, place: ui.element) -> None:
        self._place = place
        self._name = name
        self._device: DeviceAnswer
        self._shape: object = None
        self._folds: dict[str, ui.element] = {}
        self._refresh = sb.one_at_a_time(self._read)

    async def open(self) -> None:
        """Build the page, and keep it up to date."""
        self._device = await view.api(show_device, self._name)
        # Its name may change while the page is open.
        self._name = self._device.id
        view.title(self._device.name)
        is_own = view.is_admin or self._device.owner == view.user.id
        self._head = sb.row()
        if view.is_admin:
            self._review = Review(self._device.id, self._refresh)
            await self._review.show()
        with sb.grid(least=320).classes("sb-tops"):
            with sb.card(text("State"), icon="monitor_heart"):
                self._facts = ui.element("div")
            with sb.card(text("Load"), icon="show_chart"):
                self._plots = sb.stack()
            with ui.element("div"):
                if is_own:
                    self._show_rights()
        self._problems = ui.element("div")
        self._show()
        self._skills = sb.stack()
        self._programs = ui.element("div")
        self._installation: Installation | None = None
        if is_own:
            self._installation = Installation(self._device.id)
            view.run(self._installation.show(), name="integrations of a device")
        await self._show_skills()
        if is_own:
            with sb.folded(text("For developers")):
                sb.facts((text("Name in code"), f"devices.{self._device.key}"), (text("Id"), self._device.id))
        view.follow_devices(self._refresh, every_s=limits.DEVICE_REFRESH_S)

    async def _read(self) -> None:
        try:
            before, self._device = self._device, await view.api(show_device, self._name)
        except CallError:
            with sb.refilled(self._place), sb.empty("delete_outline", text("This device was removed")):
                view.link(text("All devices"), "/devices")
            return
        self._show()
        if view.is_admin and before.to_review != self._device.to_review:
            await self._review.show()
        if before.skills != self._device.skills:
            # A device that has just joined registers its skills one by one.
            await self._show_skills()

    # -- how it is --------------------------------------------------------------------------------

    def _show(self) -> None:
        device = self._device
        shape = (device.name, device.state, device.area, device.shared, device.owner, device.aliases)
        if shape != self._shape:
            self._shape = shape
            self._show_head()
        with sb.refilled(self._facts):
            is_here = device.state == "online"
            uptime, memory = (device.uptime_s, device.memory_mb) if is_here else (None, None)
            modes = {"hub": text("with the hub"), "alone": text("alone")}
            sb.facts(
                (text("Last heartbeat"), view.ago(device.last_seen) or text("never")),
                (text("Version"), device.version),
                (text("Mode"), modes.get(device.mode or "", "")),
                (text("Runs for"), lasting(uptime) if uptime is not None else ""),
                (text("Load"), load_words(device)),
                (text("Memory"), "" if memory is None else f"{text.number(memory)} MiB"),
            )
        with sb.refilled(self._plots):
            self._plot()
        with sb.refilled(self._problems):
            if device.problems or device.failing or device.awaited:
                self._show_problems()

    def _show_head(self) -> None:
        device = self._device
        with sb.refilled(self._head):
            sb.dot(*state_of(device.state))
            place_and_owner(device)
            for alias in device.aliases:
                sb.badge(alias)
            ui.element("div").classes("sb-grow")
            if view.is_admin:
                with sb.row(wrap=False):
                    view.button(text("Edit"), self._edit, icon="edit")
                    with sb.icon_button("more_vert", text("More")), ui.menu():
                        view.menu_item(text("New invitation"), self._invite)
                        if device.state != "revoked":
                            view.menu_item(text("Revoke …"), self._revoke)
                        view.menu_item(text("Remove …"), self._remove)

    def _plot(self) -> None:
        loads = self._device.loads or ()
        if len(loads) < 2:
            sb.note(text("A plot of the last hour appears here after a minute."))
            return
        shares = [(at, None if load is None else 100 * load) for at, load, _ in loads]
        memory = [(at, memory) for at, _, memory in loads]
        for label, line, unit in ((text("Load"), shares, "%"), (text("Memory"), memory, "MiB")):
            plot(line, label=label, unit=f"{label}, {unit}", height=110, width=320)

    def _show_problems(self) -> None:
        device = self._device
        with sb.card(text("Problems"), icon="error_outline"):
            if device.awaited:
                sb.note(text("Skills that did not come: {names}", names=", ".join(device.awaited)))
            for skill in device.failing:
                sb.Words("p", f"{human(skill.skill)}: {text.message(skill.reason)}", "sb-text")
            for each in device.problems:
                with sb.row(wrap=False):
                    sb.Words("span", view.at(each.at), "sb-muted sb-small")
                    sb.Words("span", text.message(each.message), "sb-text")

    # -- what it may ------------------------------------------------------------------------------

    def _show_rights(self) -> None:
        device = self._device
        with sb.card(text("Rights"), icon="verified_user"):
            self._right(
                text("For everybody at home"),
                text("Otherwise only its owner sees and calls it."),
                device.shared,
                lambda value: DeviceChange(shared=value),
            )
            if view.is_admin:
                self._right(
                    text("May confirm calls"),
                    text("People use it directly and can answer questions."),
                    bool(device.confirm),
                    lambda value: DeviceChange(confirm=value),
                )
                self._right(
                    text("Skills are trusted"),
                    text("What its skills declare needs no approval, now and later."),
                    device.trusted,
                    lambda value: DeviceChange(trusted=value),
                )
            self._scope("chat", text("Chats"), text("It talks to the assistant as its owner."))
            by_itself = text("By itself, without the assistant, as its owner.")
            self._scope("call", text("Calls skills of other devices"), by_itself)
            link = f"/audit?device={part(device.id)}"
            view.link(text("Who called it: the audit log"), link, classes="sb-small")

    def _right(self, label: str, more: str, value: bool, change: Callable[[bool], DeviceChange]) -> None:
        with sb.stack().classes("sb-tight"):
            view.switch(label, value, lambda on: self._change(change(on))).classes("sb-wide-switch")
            sb.Words("p", more, "sb-muted sb-small")

    def _scope(self, scope: DeviceScope, label: str, more: str) -> None:
        def change(value: bool) -> DeviceChange:
            others = [each for each in self._device.scopes if each != scope]
            return DeviceChange(scopes=[*others, scope] if value else others)

        self._right(label, more, scope in self._device.scopes, change)

    async def _change(self, change: DeviceChange) -> None:
        await view.api(change_device, self._name, change)
        view.notify(text("Saved"))
        await self._refresh()

    async def _edit(self) -> None:
        device = self._device
        people = await view.api(list_users)

        async def save() -> None:
            given = DeviceChange(
                name=name.value.strip(),
                area=area.value.strip(),
                floor=floor.value.strip(),
                aliases=[each.strip() for each in aliases.value.splitlines() if each.strip()],
                owner=owner.value if owner.value != device.owner else None,
            )
            await view.api(change_device, self._name, given)
            view.title(name.value.strip())
            await self._refresh()

        with view.form(text("Edit {name}", name=device.name), save):
            name = text_field(text("Name"), device.name)
            area = text_field(text("Room"), device.area or "")
            floor = text_field(text("Floor"), device.floor or "")
            known, hint = "\n".join(device.aliases), text("One in each line")
            aliases = text_field(text("Other names"), known, hint=hint, lines=True)
            names = {each.id: each.name for each in people}
            owner = choice(text("Owner"), names, device.owner)

    async def _invite(self) -> None:
        show_invitation(self._device.name, await view.api(invite, self._name))

    async def _revoke(self) -> None:
        name = self._device.name
        more = text("It is disconnected at once and can join again only by a new invitation.")
        if await view.ask(text("Revoke {name}?", name=name), more, yes=text("Revoke"), danger=True):
            await view.api(revoke_device, self._name)
            view.notify(text("{name} is revoked", name=name))
            await self._refresh()

    async def _remove(self) -> None:
        name = self._device.name
        more = text("It is forgotten with its skills, and its topics are cleared.")
        if await view.ask(text("Remove {name}?", name=name), more, yes=text("Remove"), danger=True):
            await view.api(remove_device, self._name)
            view.go("/devices")

    # -- what it can do ---------------------------------------------------------------------------

    async def _show_skills(self) -> None:
        found = await view.api(list_methods, self._device.id)
        skills = {each.skill: each for each in found.skills}
        with self._skills:
            if skills and not self._skills.default_slot.children:
                sb.heading(text("Skills"))
            for name, skill in skills.items():
                # Those that are shown stay as they are: one may be unfolded.
                if name not in self._folds:
                    self._folds[name] = self._skill(skill)
        for name in self._folds.keys() - skills.keys():
            self._folds.pop(name).delete()
        if self._installation and (turned_on := skills.get(self._installation.turned_on)):
            self._installation.turned_on = ""
            if change := _change_settings(turned_on):
                await _settings(turned_on, change)
        if "NodesSkill" in skills:
            if not self._programs.default_slot.children:
                with self._programs, sb.card(text("Programs"), icon="terminal"):
                    self._show_programs = Programs(self._device.id).show
                # One that ends by itself is an event of its owner's.
                view.on_event(NodeData, lambda _: self._show_programs())
            await self._show_programs()

    def _skill(self, skill: SkillBody) -> ui.element:
        settings = _change_settings(skill)
        with ui.element("details").classes("sb-card sb-fold") as fold:
            with ui.element("summary"):
                with sb.stack().classes("sb-tight sb-grow"):
                    sb.Words("h3", labels_of(skill)(skill.skill), "sb-h3")
                    sb.Words("p", text.message(skill.doc.partition("\n")[0]), "sb-muted sb-cut")
                ui.icon("expand_more")
            place = ui.element("div").classes("sb-contents")

        def build() -> None:
            if settings is not None:
                view.button(text("Settings"), partial(_settings, skill, settings), icon="tune")
            for method in skill.methods:
                if settings is None or method.name not in SETTINGS_METHODS:
                    method_row(skill, method)

        sb.build_unfolded(fold, place, build)
        return fold


def method_row(skill: SkillBody, method: MethodBody) -> None:
    """Show a method with its flags, and the button that opens its form."""
    with ui.element("div").classes("sb-method"):
        with sb.stack().classes("sb-tight sb-grow"):
            sb.Words("p", labels_of(skill)(method.name), "sb-strong")
            if told := method_summary(skill, method):
                sb.Words("p", told, "sb-muted")
            with sb.row():
                flags(method.flags)
            with sb.folded(text("As code")):
                sb.Words("p", method.signature, "sb-mono sb-small sb-text")
        if view.may_change or "read_only" in method.flags:
            run, tip = partial(run_by_form, skill, method), text("Run {method}", method=method.name)
            view.button(text("Run"), run, icon="play_arrow", tip=tip)


def _change_settings(skill: SkillBody) -> MethodBody | None:
    return next((each for each in skill.methods if each.name == "change_settings"), None)


async def _settings(skill: SkillBody, method: MethodBody) -> None:
    """Open the form of a skill's settings, with their present values."""
    present = await call(skill.device, skill.skill, "get_settings", {})

    async def save() -> bool:
        if await call_by_form(form, skill, method) is None:
            return False
        view.notify(text("Saved"))
        return True

    values = present.result if present is not None and isinstance(present.result, dict) else {}
    properties = method.parameters.get("properties", {})
    missing = [name for name, each in properties.items() if "default" not in each and name not in values]
    with view.form(text("Settings of {skill}", skill=labels_of(skill)(skill.skill)), save):
        form = SchemaForm({**method.parameters, "required": missing}, values, label=labels_of(skill))
