"""``strawberry certs``: the certificates with which other machines come in."""

import argparse
from datetime import UTC, datetime

from contracts.wire import rfc3339
from deploy.cli.terminal.output import Output, waiting
from deploy.home.certificates import provide_certificate
from deploy.home.directory import Home


def certs(options: argparse.Namespace) -> None:
    """Make what is missing, renew where it is time or asked for, and show what there is."""
    home = Home.find()
    with waiting("making certificates"):
        provided = provide_certificate(home, more=options.name, renew=options.renew)
    certificate = provided.certificate
    lines = [
        *provided.describe(),
        "",
        f"  authority    {home.certs / 'ca.pem'}",
        f"  certificate  {certificate.certificate}",
        f"  key          {certificate.key}",
    ]
    if provided.made_authority:
        lines += ["", "A device that joins from now on trusts this authority; keep its key where it is."]
    Output(options.json).result(
        {
            "authority": str(home.certs / "ca.pem"),
            "certificate": str(certificate.certificate),
            "key": str(certificate.key),
            "names": list(certificate.names),
            "addresses": list(certificate.addresses),
            "expires_at": rfc3339(datetime.fromtimestamp(certificate.expires_at, UTC)),
            "days_left": provided.days_left,
            "made": provided.made_certificate,
        },
        text="\n".join(lines),
    )
