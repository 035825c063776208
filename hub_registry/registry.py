"""The registry as one thing: database and memory, changed together."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from agent_core.finder import SkillFinder
from chat.tasks import open_tasks
from contracts.devices.joining import EnrolAnswer
from contracts.errors import Conflict, NotFound
from contracts.phrases import Phrase
from contracts.rates import TokenBuckets
from contracts.wire import check_shown
from hub_registry import limits
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.clients import Clients
from hub_registry.access.enrolment import Enrolment, Invitation, Joined
from hub_registry.access.joining import Joining
from hub_registry.access.people import People
from hub_registry.access.tokens import TokenAuthority
from hub_registry.devices.approvals import Approvals
from hub_registry.devices.devices import Device, DeviceChange, Devices
from hub_registry.devices.directory import Directory, Entry
from hub_registry.devices.journal import Journal, follow, read_back
from hub_registry.devices.review import digest_of
from hub_registry.settings import RegistrySettings
from hub_registry.storage.store import Store, open_store
from identity.keys import KeyPair

INDEX_SLICE_S: Final = 0.02
"""How long the event loop may be busy with indexing at a stretch."""


@dataclass(frozen=True)
class Registry:
    """Who and what there is in this home.

    Attributes:
        admin: The first user, who is made at the first start.
        directory: Devices, presence and skills; for looking up.
    """

    settings: RegistrySettings
    store: Store
    hub_id: str
    key: KeyPair
    admin: User
    accounts: Accounts
    authority: TokenAuthority
    directory: Directory
    search: SkillFinder
    journal: Journal
    devices: Devices
    enrolment: Enrolment
    joining: Joining
    clients: Clients
    people: People

    async def change_device(self, device: str, change: DeviceChange) -> Device:
        """Change what a device is called, where it stands and whose it is; see ``Devices.change``."""
        changed = await self.devices.change(device, change)
        if change.owner is not None or change.scopes is not None:
            await self.authority.follow_device(device)
        return changed

    async def decide(self, entry: Entry, digest: str, *, approve: bool, skill: str = "") -> None:
        """Approve or deny what a device has waiting.

        Args:
            digest: Of what the owner was shown, see ``digest_of``.
            skill: Whose items are meant; empty for all of the device.

        Raises:
            Conflict: If something else waits by now.
        """
        items = [each for each in entry.items if skill in ("", each.skill)]
        check_shown(
            digest,
            digest_of(items),
            name=entry.display_name,
            hint=Phrase("Look at it again. See 'strawberry devices review {device}'.", device=entry.key),
        )
        if approve:
            shown = [each for each in entry.registered.values() if skill in ("", each.name)]
            self.directory.approvals.approve(entry.id, shown)
        else:
            self.directory.approvals.deny(entry.id, items)
        self.directory.review(entry)
        await self._store_decisions()

    async def allow(self, entry: Entry, skill: str, method: str, digest: str | None) -> None:
        """Allow models to call a method whose author declared nothing without a question from now on.

        Args:
            digest: Of the method as the owner was shown it; None takes it back.

        Raises:
            CallError: If the device has no such method.
            Conflict: If it is another one by now, or its author declared what it does.
        """
        shown, hint = (
            self.directory.find_on(entry, skill, method).method,
            "'strawberry skills list' shows it.",
        )
        if digest is not None:
            if not shown.flags.unknown:
                raise Conflict(
                    "{skill}.{method} is declared, or allowed already", skill=skill, method=method, hint=hint
                )
            check_shown(digest, shown.digest, name=f"{skill}.{method}", hint=hint)
        self.directory.approvals.allow(entry.id, skill, method, digest)
        self.directory.review(entry)
        await self._store_decisions()

    async def prefer(self, skill: str, providers: Sequence[Entry]) -> None:
        """Set the order in which devices serve a device-agnostic skill, which approves them as providers.

        Args:
            providers: The first is called first; others come after them. None resets the order.

        Raises:
            NotFound: If one of them has no such skill.
        """
        for entry in providers:
            declared = entry.registered.get(skill)
            if declared is None or not declared.device_agnostic:
                raise NotFound(
                    "{name} has no device-agnostic skill {skill!r}",
                    name=entry.display_name,
                    skill=skill[:200],
                    hint="'strawberry skills list' shows what is on devices.hub.",
                )
        for device in self.directory.approvals.prefer(skill, [entry.id for entry in providers]):
            if (concerned := self.directory.get(device)) is not None:
                self.directory.review(concerned)
        await self._store_decisions()

    async def _store_decisions(self) -> None:
        # A leader that was only stopped must not replace what was decided at the next one.
        await self.directory.approvals.flush(self.journal.store or self.store)

    async def invite(self, device: str, *, lifetime_s: int | None = None) -> Invitation:
        return await self.enrolment.invite(device, lifetime_s=lifetime_s or limits.ENROLMENT_TOKEN_S)

    def enrol_answer(self, joined: Joined) -> EnrolAnswer:
        """Put together what a device needs that has joined."""
        return EnrolAnswer(
            **self.settings.bus.model_dump(),
            profile=joined.device.profile,
            device=joined.device.id,
            token=joined.token,
            bus_token=self.authority.bus_token(joined.token),
            hub_id=self.hub_id,
            hub_key=self.key.public.jwk(),
        )

    async def revoke_device(self, device: str) -> Device:
        """Shut a device out, and disconnect it.

        Raises:
            NotFound: If there is no such device.
        """
        revoked = await self.devices.revoke(device)
        await self.authority.revoke_subject("device", device)
        return revoked


@asynccontextmanager
async def open_registry(settings: RegistrySettings, *, key: KeyPair) -> AsyncIterator[Registry]:
    """Open the registry with all that the database knows.

    Args:
        key: The hub's identity, which signs the tokens.

    Raises:
        ConfigError: If the database cannot be used or is of another hub, also later where another has claimed
            it.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.database))
        await store.claim(replica=settings.instance if settings.is_replica else "")
        accounts = Accounts(store)
        hub_id = await accounts.hub_id(key=key.kid)
        authority = TokenAuthority(store, hub_id=hub_id, key=key, for_emqx=settings.for_emqx)
        await authority.load()
        approvals = Approvals()
        await approvals.load(store)
        directory = Directory(approvals)
        await read_back(store, directory, hub_id=hub_id)
        devices = Devices(store, on_changed=directory.put, on_removed=directory.drop)
        search = SkillFinder(
            directory,
            expiry_s=limits.SKILL_EXPIRY_S,
            slice_s=INDEX_SLICE_S,
            on_problem=directory.note_problem,
        )
        journal = Journal(None if settings.is_replica else store)
        enrolment = Enrolment(
            store,
            authority,
            device_token_s=limits.DEVICE_TOKEN_S,
            failures=TokenBuckets(burst=limits.ENROLMENT_FAILURES, per_second=limits.ENROLMENT_FAILURES / 60),
            on_bound=directory.put,
        )
        store.on_change(("user",), accounts.follow)
        store.on_change(("token", "device"), authority.follow)
        following = partial(follow, store, directory, journal, hub_id=hub_id)
        store.on_change(("device", "registration", "approval"), following)
        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(store.follow(), name="changes")
        try:
            yield Registry(
                settings=settings,
                store=store,
                hub_id=hub_id,
                key=key,
                admin=await accounts.first_admin(),
                accounts=accounts,
                authority=authority,
                directory=directory,
                search=search,
                journal=journal,
                devices=devices,
                enrolment=enrolment,
                joining=Joining(devices, enrolment, authority, hub_key=key.kid, ca=settings.bus.ca),
                clients=Clients(store, authority, instance=settings.instance),
                people=People(store, accounts, authority, on_handed=directory.put),
            )
        finally:
            search.close()
            await journal.flush()
            await journal.flush_alive()
            if journal.store is not None:
                await approvals.flush(journal.store)
