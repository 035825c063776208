"""The checks of ``strawberry broker check``: that a broker does what the bus needs and denies the rest."""

from contextlib import aclosing

from broker.check.accounts import OurBroker
from broker.check.rights import try_ours
from broker.check.shared import SharedBroker, try_shared
from broker.check.transport import Finding
from contracts.errors import StrawberryError

__all__ = ["Finding", "OurBroker", "SharedBroker", "check"]


async def check(broker: OurBroker | SharedBroker) -> list[Finding]:
    """Try a broker that runs. Nothing is left behind on it, also when this is interrupted.

    Returns:
        What was tried, in that order; that a broker cannot be reached is a finding, too.
    """
    findings: list[Finding] = []
    tried = try_shared(broker) if isinstance(broker, SharedBroker) else try_ours(broker)
    try:
        async with aclosing(tried):
            async for finding in tried:
                findings.append(finding)  # noqa: PERF401  what was found before an error counts
    except StrawberryError as error:
        findings.append(Finding("connection", ok=False, detail=error.message, hint=error.hint))
    except TimeoutError:
        findings.append(
            Finding("connection", ok=False, detail="the broker does not answer", hint="Look into its log.")
        )
    return findings
